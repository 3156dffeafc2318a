"""The spool: keeps events on disk until Redis has acknowledged them, so that they outlive their process.

Here belong the files, their locks, and the sending of events that a dead process has left.
"""
