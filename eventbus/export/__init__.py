"""Exports the store's changes to external sinks: decides what to write and when, and keeps the position."""
