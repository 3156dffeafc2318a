"""Parses the words of a command line: kinds, objects, options, times."""
