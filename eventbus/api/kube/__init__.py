"""The Kubernetes API's dialect: requests, bodies, validation, patches, verbs and responses."""
