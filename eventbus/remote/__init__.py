"""A bus that is reached through an API worker, over HTTP: what records, reads and watches there. Never Redis."""
