"""Parts that measure this project: each a process with a private server, `python -m benchmarks.ours.<part>`."""
