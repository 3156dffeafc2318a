"""Endpoints under `/eventbus/v1/`, which are no part of Kubernetes' API: a file each."""
