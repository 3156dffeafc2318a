"""Measures costs. `python -m benchmarks` prints Markdown tables; `.state/bench` keeps the last comparison."""
