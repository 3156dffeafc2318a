"""The spool: what Redis has not acknowledged is kept on disk, so that it outlives the process that recorded it.

Here belong the files, who holds them, and how what a dead process has left is sent. `sender.py` says what waits.
"""
