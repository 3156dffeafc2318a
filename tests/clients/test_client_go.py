"""client-go itself: its informer misses nothing when its API worker is killed, and its two recorders are understood."""

from __future__ import annotations

import pytest

from tests.clients.conftest import Front
from tests.clients.living import lives_through_a_killed_worker
from tests.clients.tools import CLIENT_GO
from tests.support.api_replay import EVENTS


@pytest.mark.skipif(not CLIENT_GO.exists(), reason="make test-go compiles it")
@pytest.mark.parametrize(
    "media_type", ["application/json", "application/vnd.kubernetes.protobuf"], ids=["json", "protobuf"]
)
def test_an_informer_and_the_recorders_of_client_go_miss_nothing(front: Front, media_type: str) -> None:
    lives_through_a_killed_worker(front, [str(CLIENT_GO), media_type])

    _, second = front.workers
    (event,) = second.call("GET", f"{EVENTS}?fieldSelector=reason=Bound").json["items"]
    fields = ("action", "message", "reportingComponent", "source", "firstTimestamp")
    assert [event[field] for field in fields] == ["Binding", "to n1", "example.com/go", {}, None]
    assert event["related"]["name"] == "n1"
    assert event["eventTime"]
