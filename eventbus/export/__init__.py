"""Follows the store's changes for one external sink: what to write, when, and how far it has come."""
