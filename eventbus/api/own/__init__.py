"""What is served under `/eventbus/v1/` and is no part of Kubernetes' API: a file an endpoint."""
