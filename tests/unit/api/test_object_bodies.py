from __future__ import annotations

import json
from typing import Any

import pytest

from eventbus.api.kube.bodies import Body, bad_patch, object_of
from eventbus.api.kube.negotiation import JSON
from eventbus.api.kube.options import WriteOptions
from eventbus.api.kube.request_info import RequestInfo
from eventbus.api.kube.resources import Resource
from eventbus.api.status import ApiError
from eventbus.model.kinds import EVENT, EVENTS_V1, LEASE

GOOD: dict[str, Any] = {
    "metadata": {"name": "e", "namespace": "shop"},
    "reason": "Started",
    "firstTimestamp": "2026-01-01T01:00:00+01:00",
    "nobody": {"knows": 1},
}


@pytest.mark.parametrize("kind", [EVENT, EVENTS_V1, LEASE], ids=lambda kind: kind.api_version)
@pytest.mark.parametrize(
    "data",
    [
        GOOD,
        GOOD | {"metadata": {"name": "e"}},
        GOOD | {"metadata": {"name": "e", "namespace": "other"}},
        GOOD | {"metadata": None},
        GOOD | {"metadata": {"name": "e", "labels": None, "namespace": None}},
        GOOD | {"reason": None},
        GOOD | {"kind": "Pod"},
        GOOD | {"kind": None, "apiVersion": ""},
        GOOD | {"apiVersion": "v7"},
        GOOD | {"reason": 5},
        GOOD | {"reason": "a\0b"},
        GOOD | {"eventTime": "2026-01-01T00:00:00.123456789Z"},
        [],
        "{",
        "\xff",
        '{"metadata":{"name":"e"},"nobody":"\xff"}',
        '{"metadata":{"name":"e"},"nobody":"\\ud800"}',
        '{"metadata":{"name":"e"},"nobody":"\\x"}',
        '{"metadata":{"name":"e"},"nobody":1e999999}',
        '{"metadata":{"name":"e"},"nobody":[1,]}',
        '{"metadata":{"name":"e"}} {}',
        "[" * 10**5,
    ],
    ids=lambda data: str(data)[:60],
)
def test_an_object_that_is_read_at_once_is_the_one_that_is_read_slowly(kind: Any, data: Any) -> None:
    body = Body(data.encode("latin-1") if isinstance(data, str) else json.dumps(data).encode(), JSON)
    asked = RequestInfo("create", Resource.of(kind), "shop", "", "")
    assert _read(asked, body, WriteOptions()) == _read(asked, body, WriteOptions(validation="Warn"))


def _read(asked: RequestInfo, body: Body, options: WriteOptions) -> Any:
    try:
        return object_of(asked, body, options)[0]
    except ApiError as refusal:
        return refusal.to_json()


def test_the_patch_that_is_refused_is_shown_in_quotes_as_go_does() -> None:
    refused = bad_patch({"metadata": {"labels": 5}}, "no object")
    assert refused.details
    assert refused.details["causes"][0]["message"] == r'Invalid value: "{\"metadata\":{\"labels\":5}}": no object'
