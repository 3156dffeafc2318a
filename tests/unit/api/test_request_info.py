"""What is read from a path, and what is kept of it."""

from __future__ import annotations

import sys
from contextlib import suppress

from eventbus.api.request_info import read_request
from eventbus.api.resources import Resources
from eventbus.api.status import Refusal
from eventbus.kinds import KINDS


def test_a_path_longer_than_any_resources_is_not_remembered() -> None:
    path = "/api/v1/namespaces" + "/a" * 1000
    held = sys.getrefcount(path)
    with suppress(Refusal):
        read_request("GET", path, {}, Resources(KINDS))
    assert sys.getrefcount(path) == held
