"""The web page: its files, and the session of its user."""
