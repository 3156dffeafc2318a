"""The agent: reports that a machine is alive, with its status, as the kubelet does for its node.

Here are the measurements, the status, the lease and the pods of a node. `eventbus.lifecycle` judges silence, and
nothing here imports it.
"""
