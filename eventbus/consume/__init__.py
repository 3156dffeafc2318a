"""Reads the stream `incoming`: groups, watchers, take-over from dead workers, the dead letter, and housekeeping.

Here belong the loops that read entries and hand them to a handler. The handlers are elsewhere:
`correlate/` fills the store, `export/` follows the changes of the store. Calls of Redis are in `broker/`.
"""
