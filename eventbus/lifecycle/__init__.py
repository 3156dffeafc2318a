"""Watches the leases of all nodes, and records once that a node is lost.

Any number of lifecycle workers watch, and one is active. A node is *silent* if a worker, by its own clock, has seen no
heartbeat for the node's grace period. A node is *lost* if the active worker has written this: Ready is Unknown.
"""
