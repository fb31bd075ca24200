"""Results as text, HTML and pictures."""
