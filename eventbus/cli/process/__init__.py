"""Runs other programs: starts, signals, restarts and ends them, and passes on their output."""
