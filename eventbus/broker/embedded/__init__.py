"""The server of a bus that has none: private, in a state directory of one user."""
