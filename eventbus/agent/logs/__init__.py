"""Logs of pods on this machine: read, followed, also while they are rotated."""
