"""The oldest server versions that will do, whether reached over the network or started here."""

#: By kind: those that have all we call (functions with flags, XAUTOCLAIM's third reply).
OLDEST_VERSION = {"redis": (7, 0), "valkey": (8, 0)}
