"""HTTP to hosts that may be hostile, for sinks, receivers and the agent: the guard of addresses, and the client."""
