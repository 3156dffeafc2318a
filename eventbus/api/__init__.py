"""The HTTP API of a bus: the Kubernetes API's dialect over `eventbus.store`. The only place that imports aiohttp.

A request passes authentication, negotiation and verbs, or starts a watch. Blocking calls run in a bounded pool.
"""
