"""Files as they are: which ones, whether they are still the same, and how to replace them safely."""
