"""Records events: the way from a recorder in a process to the stream, and to watchers in the same process.

Here belong the recorder and the broadcaster, the outbox with its buffer and flusher, the numbers of producers and the
resending of lost batches, the spool on disk, and the hooks for the end and the fork of a process. Transports are in
`broker/` and `client/`, readers of the stream in `consume/`; a broadcaster only starts them.
"""
