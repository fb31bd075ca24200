"""Commands that stand on the rooms for themselves, a folder each. Only the Python API imports one."""
