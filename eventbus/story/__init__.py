"""One object's story: what is known of it, and what happened around it before it went wrong."""
