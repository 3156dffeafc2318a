"""The agent's runtime: pods as processes of this machine. `contract.py` is all that the agent's loop knows of it."""
