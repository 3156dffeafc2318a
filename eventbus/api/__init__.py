"""The HTTP API of a bus: the Kubernetes API's dialect over `eventbus.store`. The only place that imports aiohttp.

A request passes access, negotiation, verbs and, where it asks for one, a watch. What blocks runs in a bounded pool.
"""
