"""Sources of an agent's pods: files, a URL, the bus; each is compared with its last list."""
