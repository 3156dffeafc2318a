"""Correlates events into the store: computes the keys, and has `record` decide and write."""
