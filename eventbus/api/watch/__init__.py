"""Watches: changes reach the loop once, are encoded once for each form, and are written to each client."""
