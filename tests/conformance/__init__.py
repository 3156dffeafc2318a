"""The rules of correlation as data: client-go's recorded vectors and our own tables, through one runner.

`python -m tests.conformance DIR…` is the runner; `model.py` is the rules in plain Python, for tests only.
"""
