"""The story of one object: its events, its relations, and the events around its first Warning."""
