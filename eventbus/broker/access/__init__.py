"""Permissions: the commands of every function, the rights of each role made from them, and the rights a user has."""
