"""Watches the leases of all nodes and turns silence into one event, on every machine's behalf.

Any number of lifecycle workers watch, one acts. Time is what they have watched themselves, never what a node says.
"""
