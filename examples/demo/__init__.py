"""`make demo`: a bus of its own, its workers, and three programs that record what really happens on this machine."""
