"""What is read from a request's head, and what is kept of it."""

from __future__ import annotations

import sys
from contextlib import suppress

from eventbus.api.kube.negotiation import negotiate
from eventbus.api.kube.request_info import read_request
from eventbus.api.kube.resources import Resources
from eventbus.api.status import ApiError
from eventbus.model.kinds import EVENT, KINDS
from eventbus.store.selection import selection_of


def test_a_path_longer_than_any_resources_is_not_remembered() -> None:
    path = "/api/v1/namespaces" + "/a" * 1000
    held = sys.getrefcount(path)
    with suppress(ApiError):
        read_request("GET", path, {}, Resources(KINDS))
    assert sys.getrefcount(path) == held


def test_neither_a_long_accept_header_nor_a_long_selector_is_remembered() -> None:
    accept, selector = "a/b," * 1000 + "*/*", f"app in ({','.join(['web'] * 1000)})"
    held = sys.getrefcount(accept), sys.getrefcount(selector)
    negotiate(accept, {}, "", watch=False, many=True)
    selection_of(EVENT, "", selector, "")
    assert (sys.getrefcount(accept), sys.getrefcount(selector)) == held
