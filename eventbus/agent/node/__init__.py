"""The node: its registration, lease, status, and the measurements of its machine."""
