"""JSON documents and nested records: rollouts that stand in lists and objects, one row each."""
