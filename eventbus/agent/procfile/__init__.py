"""Lines of a Procfile that run as pods, for `eventbus up` and `worker agent --procfile`."""
