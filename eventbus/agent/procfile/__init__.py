"""Lines of a Procfile that run as pods, for `eventbus up`."""
