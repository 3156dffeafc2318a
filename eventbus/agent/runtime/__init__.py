"""The agent's runtime: pods as processes of this machine. `contract.py` has its values and errors."""
