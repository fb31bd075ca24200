"""From a plan and rows to advantages, and facts of groups. Knows nothing of files."""
