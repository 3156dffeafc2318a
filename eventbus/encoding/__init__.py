"""Bytes and JSON of events and objects: what others read, and what lies on the stream. Speaks to nobody."""
