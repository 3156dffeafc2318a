"""Exports the store's changes to external sinks: selects changes, schedules writes, and stores the position."""
