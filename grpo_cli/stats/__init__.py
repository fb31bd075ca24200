"""Facts about rewards and groups, and how runs and plans differ on them, as frozen dataclasses."""
