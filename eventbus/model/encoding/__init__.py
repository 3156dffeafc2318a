"""Values as bytes: the format of the stream (`wire`), and JSON as Go reads and writes it.

Not here: the format of stored events, which `store.stored` and `broker/lua/objects.lua` define.
"""
