"""Formats objects, events and numbers for people: tables, YAML, JSON and JSONPath. Fetches nothing."""
