"""The shim: a small process a pod, apart from the agent, that owns the pod's processes and remembers how they ended.

It is forked from a zygote (`zygote.py`) and lives on a handful of modules: nothing here imports more than the standard
library and this package, since each megabyte would be paid once a pod. The agent sends requests (`protocol.py`).
"""
