"""Everything that speaks Redis; its errors are translated here and nowhere else."""

#: The oldest servers that have everything we call (functions with flags, the third reply of XAUTOCLAIM), by kind.
OLDEST_VERSION = {"redis": (7, 0), "valkey": (8, 0)}
