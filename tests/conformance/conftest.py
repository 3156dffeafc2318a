"""Where there are no recorded vectors, their tests are not collected: our own tables test the same rules."""

from __future__ import annotations

from tests.conformance.vectors import VECTORS

collect_ignore = [] if VECTORS.is_dir() else ["test_vectors.py"]
