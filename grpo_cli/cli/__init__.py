"""The command line: options as a table, one file per command, bodies of a few lines."""
