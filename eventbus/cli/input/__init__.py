"""Parses what people type: kinds, objects, options, times."""
