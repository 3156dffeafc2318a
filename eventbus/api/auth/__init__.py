"""Authentication and authorization: who sends a request, and what a user may do."""
