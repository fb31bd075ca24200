"""Parquet: every byte before the footer stays; new column chunks and a new footer follow."""
