"""A line of the audit has fields for JSON logs."""

from __future__ import annotations

import logging

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from eventbus.api.auth.access import User
from eventbus.api.auth.proxies import TrustedProxies
from eventbus.api.context import AUDIT_NOTE, USER
from eventbus.api.middleware import audit


def test_an_audit_line_has_its_parts_as_fields(caplog: pytest.LogCaptureFixture) -> None:
    request = make_mocked_request("DELETE", "/api/v1/namespaces/shop/events/a%0Ab")
    request[USER], request[AUDIT_NOTE] = User("ann\n"), "1 event"
    with caplog.at_level(logging.INFO, "eventbus.audit"):
        audit(request, web.Response(status=200), 0.0125, TrustedProxies())
    (record,) = caplog.records
    assert record.getMessage().endswith(r"DELETE /api/v1/namespaces/shop/events/a%0Ab -> 200 in 12 ms: 1 event")
    fields = record.__dict__["fields"]
    assert fields.pop("client") == fields.pop("peer") != ""
    assert fields == {
        "user": r"ann\x0a",
        "method": "DELETE",
        "path": "/api/v1/namespaces/shop/events/a%0Ab",
        "code": 200,
        "durationMs": 12.5,
        "note": "1 event",
    }


def test_reads_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "eventbus.audit"):
        audit(make_mocked_request("GET", "/api/v1/events"), web.Response(), 0.0, TrustedProxies())
    assert caplog.records == []
