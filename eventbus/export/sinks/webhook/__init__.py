"""The sink that posts CloudEvents to an HTTPS endpoint."""
