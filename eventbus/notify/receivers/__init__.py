"""Receivers of notifications: one module for each service. `contract.py` is their interface."""
