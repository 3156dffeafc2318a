"""Finds Redis and makes clients: one server, the primary of sentinels, or the nodes of a cluster."""
