"""Watches the leases of all nodes and records each silent node once.

Any number of lifecycle workers watch, and one acts. Silence is measured by their own clocks, not by a node's times.
"""
