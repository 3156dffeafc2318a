"""Reads how a bus is doing: its numbers, and checks that say what is wrong with the cure."""
