"""Sources of an agent's pods: files, a URL, the bus; each compared with what it said before."""
