"""Values without I/O: events, objects, kinds, selectors, validation, and their JSON and wire encodings.

Not here: anything that reads or writes Redis, a file or a socket, and helpers without a subject (`util`).
"""
