"""The values of all kinds except events: nodes, leases and namespaces, pods, ConfigMaps and Secrets.

Values, frozen all the way down, and the rules that need nothing else. Their JSON is in `model.encoding`, the table of
kinds in `model.kinds`.
"""
