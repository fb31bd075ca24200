"""Facts about rewards and groups, as plain data."""
