"""Alertmanager's API v2 under `/alertmanager`, for amtool and other clients of it."""
