"""The store worker: it decodes batches of events, computes their correlation keys, and has Redis store them.

Not here: the rules of correlation and the writes, which run in Redis (`broker/lua/correlate_and_store.lua`), and the
loop of a consumer group (`consume`).
"""
