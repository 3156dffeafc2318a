"""The agent: says of a machine that it is there and how it is, as the kubelet does of its node.

Here are the measurements, the status, the lease and the pods of a node. `eventbus.lifecycle` judges silence, and
nothing here imports it.
"""
