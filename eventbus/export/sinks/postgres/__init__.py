"""The sink that writes events into PostgreSQL."""
