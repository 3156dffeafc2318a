"""The sink that appends JSON Lines to a file."""
