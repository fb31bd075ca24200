"""Which formula made the advantages of a file."""
