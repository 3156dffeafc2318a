"""The agent: says of a machine that it is there and how it is, as the kubelet does of its node.

What measures, what writes the status, what renews the lease; running pods will live beside it. Judging silence is
`eventbus.lifecycle`'s, and nothing here imports it.
"""
