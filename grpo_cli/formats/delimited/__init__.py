"""CSV and TSV: every cell keeps its text and its quotes; the new cells follow the last cell."""
