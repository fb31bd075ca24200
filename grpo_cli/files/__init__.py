"""Bytes on disk: which files are meant, whether they are still the same, and how to replace them safely."""
