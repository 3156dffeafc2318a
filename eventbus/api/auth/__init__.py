"""Authentication and authorization: the user of a request, and the rights of users."""
