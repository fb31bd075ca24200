"""Estimators: pure functions on polars expressions, by topic, and one literal table of them (`registry`)."""
