"""Reads the state of a bus: its numbers, and checks with a cure for each problem."""
