"""Reads `incoming`: groups, watchers, take-over from the dead, the dead letter, and the housekeeping of workers."""
