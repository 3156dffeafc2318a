"""Parses command-line arguments: kinds, objects, options, times."""
