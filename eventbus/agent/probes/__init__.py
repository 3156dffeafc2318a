"""Probes: checks of containers that are repeated, and their consequences."""
