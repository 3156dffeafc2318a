"""Notifications: rules in Alertmanager's words, groups with their own timers, and receivers with state."""
