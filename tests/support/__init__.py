"""Helpers of tests in several folders: systems to write to and read from, and worlds to test in."""
