"""The stored objects of a bus: read, search, watch and write them.

Here: `object_store` (the entrance), `reader` and `writer` of one kind, `watch` and `change_hub` (changes), `storage`
with two implementations (Redis), `scan`, `event_search` and `occurrences` (reads of many), `story` (of one object).
Not here: correlation, which writes recorded events (`correlate`), keys and functions of Redis (`broker`), local copies
(`cache`), and HTTP (`api`, `client`).
"""
