"""The columns of each kind, as kubectl prints them."""
