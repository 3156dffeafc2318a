"""Programs to read and to run: `python -m examples.seed_demo`, `python -m examples.demo`."""
