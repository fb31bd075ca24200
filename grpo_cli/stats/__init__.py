"""Facts about rewards and groups, as frozen dataclasses."""
