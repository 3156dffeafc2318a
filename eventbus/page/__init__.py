"""The page for people: its files, as they are served. No code of Python."""
