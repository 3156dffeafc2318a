"""Resource versions as HTTP clients see them: one growing integer for each kind."""
