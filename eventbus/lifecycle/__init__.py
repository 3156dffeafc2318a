"""Watches the leases of all nodes and turns silence into one event, on every machine's behalf.

Any number of lifecycle workers watch, and one acts. Silence is measured by their own clocks, not by a node's times.
"""
