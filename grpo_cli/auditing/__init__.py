"""Which formula made the advantages of a file, and how plans differ on the same rows."""
