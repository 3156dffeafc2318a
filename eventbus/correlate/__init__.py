"""Correlates events into the store: computes the keys, and has `correlate_and_store` decide and write."""
