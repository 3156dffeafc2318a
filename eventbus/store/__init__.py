"""The stored objects and their changes: get, list, put, watch."""
