"""Fakes for the tests of programs that record events."""
