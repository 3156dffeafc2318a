"""The sink that writes events into a Kubernetes cluster."""
