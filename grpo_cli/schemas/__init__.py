"""Layouts of known tools: what their files are recognised by, and which columns are the key and the reward."""
