"""Checks of rows and groups, by subject; `registry` lists them in their order."""
