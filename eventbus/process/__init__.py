"""Runs other programs: starts, signals, restarts and ends them, and passes on what they print."""
