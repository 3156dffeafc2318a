"""Small helpers that belong to no subject: clock, back-off, periodic calls, logging setup, text, failpoints.

Not here: anything that knows events, objects or Redis.
"""
