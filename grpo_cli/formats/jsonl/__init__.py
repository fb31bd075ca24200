"""JSON lines: a row a line; the line is written back untouched, with new members before its last brace."""
