"""The Kubernetes sink against an API server over HTTP: what it sends, what it keeps, and what each answer means."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eventbus.errors import (
    ConfigError,
    EventBusError,
    EventRejected,
    EventUnbuildable,
    NotFound,
    SinkUnreachable,
    Throttled,
    UnexpectedReply,
)
from eventbus.export.sinks import EventPatch, EventSink, kubernetes, make_sink
from eventbus.model.event import Event
from tests.builders import NOW, make_event, make_reference
from tests.support.api_server import STRATEGIC_MERGE, ApiServer, Fault, serving
from tests.support.certificates import make_certificate
from tests.support.kubeconfig import TOKEN, write_kubeconfig

VERSION = "eventbus/resource-version"


@pytest.fixture
def api() -> ApiServer:
    return ApiServer(token=TOKEN)


@pytest.fixture
def kubeconfig(api: ApiServer, tmp_path: Path) -> Iterator[Path]:
    with serving(api) as url:
        yield write_kubeconfig(tmp_path / "config", url)


@pytest.fixture
def sink(kubeconfig: Path) -> Iterator[EventSink]:
    sink = make_sink(f"kubernetes:{kubeconfig}", {}, timeout_s=60)
    yield sink
    sink.close()


def stored(*, rv: int, count: int = 1, **overrides: Any) -> Event:
    """The event web-0.1 as the store has it."""
    event = make_event(count=count, **overrides)
    metadata = {"name": "web-0.1", "uid": "producer:1", "resource_version": str(rv), "creation_timestamp": NOW}
    return msgspec.structs.replace(event, metadata=msgspec.structs.replace(event.metadata, **metadata))


def patch_of(event: Event, before: Event) -> EventPatch:
    """Make the patch that the loop makes: values of the event, name and version as the sink returned *before*."""
    return EventPatch(
        name=before.metadata.name,
        version=before.metadata.resource_version,
        count=event.count,
        last_timestamp=event.last_timestamp,
        message=event.message,
    )


def in_cluster(api: ApiServer) -> dict[str, Any]:
    return api.objects["default", "web-0.1"]


def test_create_posts_the_core_event_without_what_the_server_sets_itself(api: ApiServer, sink: EventSink) -> None:
    answer = sink.create(stored(rv=7, message="wäre\tgut"))
    (request,) = api.requests
    assert (request.method, request.path) == ("POST", "/api/v1/namespaces/default/events")
    assert request.query == "fieldManager=eventbus"
    body = request.body
    assert (body["kind"], body["apiVersion"], body["message"], body["count"]) == ("Event", "v1", "wäre\tgut", 1)
    assert body["firstTimestamp"] == "2024-01-01T12:00:00Z"
    assert body["involvedObject"]["name"] == "web-0"
    assert body["metadata"]["annotations"][VERSION] == "7"
    assert answer.metadata.name == "web-0.1"
    assert answer.metadata.resource_version == in_cluster(api)["metadata"]["resourceVersion"] == "1001"


def test_patch_is_a_strategic_merge_of_what_a_repeat_changes(api: ApiServer, sink: EventSink) -> None:
    first = sink.create(stored(rv=7))
    later = NOW.replace(minute=5)
    event = stored(rv=8, count=2, last_timestamp=later, message="again")
    answer = sink.patch(event, patch_of(event, first))
    request = api.requests[-1]
    assert (request.method, request.path) == ("PATCH", "/api/v1/namespaces/default/events/web-0.1")
    assert request.content_type == STRATEGIC_MERGE
    assert {key: value for key, value in request.body.items() if key != "metadata"} == {
        "count": 2,
        "lastTimestamp": "2024-01-01T12:05:00Z",
        "message": "again",
    }
    found = in_cluster(api)
    assert (found["count"], found["message"], found["firstTimestamp"]) == (2, "again", "2024-01-01T12:00:00Z")
    assert found["metadata"]["annotations"][VERSION] == "8"
    assert (answer.count, answer.metadata.resource_version) == (2, "1002")


def test_a_patch_of_an_expired_event_is_not_found_and_the_loop_creates_it(api: ApiServer, sink: EventSink) -> None:
    first = sink.create(stored(rv=7))
    api.objects.clear()
    event = stored(rv=8, count=2)
    with pytest.raises(NotFound):
        sink.patch(event, patch_of(event, first))
    sink.create(event)
    assert in_cluster(api)["count"] == 2


def test_a_create_whose_reply_was_lost_can_be_repeated(api: ApiServer, sink: EventSink) -> None:
    api.faults.append(Fault(applied=True))
    with pytest.raises(SinkUnreachable):
        sink.create(stored(rv=7, count=3))
    answer = sink.create(stored(rv=7, count=3))
    assert in_cluster(api)["count"] == answer.count == 3
    assert [request.method for request in api.requests] == ["POST", "POST", "GET"]


@pytest.mark.parametrize(("there", "ours", "kept"), [(2, 5, 5), (9, 5, 9)])
def test_of_two_events_with_one_name_the_higher_count_stays(
    api: ApiServer, sink: EventSink, there: int, ours: int, kept: int
) -> None:
    sink.create(stored(rv=7))
    api.change("default", "web-0.1", count=there)
    answer = sink.create(stored(rv=20, count=ours))
    assert in_cluster(api)["count"] == answer.count == kept


def test_an_older_version_changes_nothing(api: ApiServer, sink: EventSink) -> None:
    first = sink.create(stored(rv=9, count=2))
    newer = stored(rv=10, count=3)
    sink.patch(newer, patch_of(newer, first))
    stale = stored(rv=9, count=2)
    for answer in (sink.patch(stale, patch_of(stale, first)), sink.update(stale), sink.create(stale)):
        assert answer.count == 3
    assert in_cluster(api)["count"] == 3
    assert in_cluster(api)["metadata"]["annotations"][VERSION] == "10"


def test_a_conflict_is_read_again_and_the_newer_count_wins(api: ApiServer, sink: EventSink) -> None:
    first = sink.create(stored(rv=7))
    api.change("default", "web-0.1", reportingComponent="somebody")
    event = stored(rv=8, count=2)
    answer = sink.patch(event, patch_of(event, first))
    assert answer.count == 2
    assert in_cluster(api)["reportingComponent"] == "somebody"
    assert [request.method for request in api.requests] == ["POST", "PATCH", "GET", "PATCH"]


def test_conflicts_without_end_are_given_back_to_the_loop(api: ApiServer, sink: EventSink) -> None:
    first = sink.create(stored(rv=7))
    event = stored(rv=8, count=2)
    for _ in range(5):
        api.faults.append(Fault(409, "Conflict"))
        api.faults.append(Fault(200, body=msgspec.json.encode(in_cluster(api))))
    api.faults.append(Fault(409, "Conflict"))
    with pytest.raises(UnexpectedReply, match="other clients"):
        sink.patch(event, patch_of(event, first))


def test_update_creates_what_is_missing_and_patches_what_is_there(api: ApiServer, sink: EventSink) -> None:
    sink.update(stored(rv=7))
    assert in_cluster(api)["count"] == 1
    sink.update(stored(rv=8, count=4))
    assert in_cluster(api)["count"] == 4
    assert sink.update(stored(rv=8, count=4)).count == 4
    assert [request.method for request in api.requests] == ["GET", "POST", "GET", "PATCH", "GET"]


def test_an_event_about_another_object_is_not_touched(api: ApiServer, sink: EventSink) -> None:
    sink.create(stored(rv=7))
    with pytest.raises(EventRejected, match="another object"):
        sink.create(stored(rv=8, count=5, involved_object=make_reference(kind="Deployment")))
    assert in_cluster(api)["count"] == 1


def test_a_cluster_scoped_objects_event_goes_to_the_namespace_default(api: ApiServer, sink: EventSink) -> None:
    sink.create(stored(rv=7, involved_object=make_reference(kind="Node", namespace="")))
    assert list(api.objects) == [("default", "web-0.1")]


def test_a_sink_of_one_namespace_rejects_others_without_asking(api: ApiServer, kubeconfig: Path) -> None:
    sink = make_sink(f"kubernetes:{kubeconfig}?namespace=prod", {})
    with pytest.raises(EventRejected, match="prod"):
        sink.create(stored(rv=7))
    assert api.requests == []
    sink.close()


#: The answer to a create, and the error that it is.
ANSWERS: list[tuple[Fault, type[EventBusError]]] = [
    (Fault(401, "Unauthorized"), SinkUnreachable),
    (Fault(403, "Forbidden"), SinkUnreachable),
    (Fault(403, "Forbidden", causes=("NamespaceTerminating",)), EventRejected),
    (Fault(400, "BadRequest"), EventRejected),
    (Fault(422, "Invalid"), EventRejected),
    (Fault(413, "RequestEntityTooLarge"), EventRejected),
    (Fault(404, "NotFound", 'namespaces "default" not found'), EventRejected),
    (Fault(500, "InternalError"), UnexpectedReply),
    (Fault(503, "ServiceUnavailable"), SinkUnreachable),
    (Fault(503, "ServiceUnavailable", headers={"Retry-After": "7"}), Throttled),
    (Fault(504, "Timeout"), SinkUnreachable),
    (Fault(404, body=b"<html>nginx</html>", content_type="text/html"), SinkUnreachable),
    (Fault(405, body=b"{}"), SinkUnreachable),
    (Fault(406, body=b"", content_type=None), SinkUnreachable),
    (Fault(502, body=b"<html>bad gateway</html>", content_type="text/html"), SinkUnreachable),
    (Fault(503, body=b"", content_type=None), SinkUnreachable),
    (Fault(429, "TooManyRequests"), Throttled),
    (Fault(200, body=b'{"kind":"Status","metadata":{}}'), UnexpectedReply),
    (Fault(200, body=b"<html>a login page</html>", content_type="text/html"), UnexpectedReply),
    (Fault(), SinkUnreachable),
]


def test_an_answer_to_create_means(api: ApiServer, sink: EventSink) -> None:
    for fault, error in ANSWERS:
        api.faults.append(fault)
        with pytest.raises(EventBusError) as caught:
            sink.create(stored(rv=7))
        assert type(caught.value) is error, (fault, caught.value)
    sink.create(stored(rv=7))  # and it goes on


def test_retry_after_is_handed_on(api: ApiServer, sink: EventSink) -> None:
    for header, seconds in (("7", 7.0), ("", None), ("soon", None), ("99999999", 600.0)):
        api.faults.append(Fault(429, "TooManyRequests", headers={"Retry-After": header} if header else {}))
        with pytest.raises(Throttled) as caught:
            sink.create(stored(rv=7))
        assert (header, caught.value.retry_after_s) == (header, seconds)


def test_a_name_no_cluster_takes_is_rejected_with_the_servers_words(sink: EventSink) -> None:
    event = stored(rv=7)
    bad = msgspec.structs.replace(event, metadata=msgspec.structs.replace(event.metadata, name="Not_A_Name"))
    with pytest.raises(EventRejected, match=r"metadata\.name"):
        sink.create(bad)


def test_an_event_without_a_version_cannot_be_built(sink: EventSink) -> None:
    event = stored(rv=7)
    with pytest.raises(EventUnbuildable):
        sink.create(
            msgspec.structs.replace(event, metadata=msgspec.structs.replace(event.metadata, resource_version=""))
        )


def test_the_kubeconfig_of_the_environment_is_used_and_its_token_never_shown(kubeconfig: Path, api: ApiServer) -> None:
    sink = make_sink("kubernetes:", {"KUBECONFIG": str(kubeconfig)})
    sink.create(stored(rv=7))
    assert api.requests[0].authorization == f"Bearer {TOKEN}"
    assert TOKEN not in repr(sink)
    sink.close()


def test_another_context_is_another_user(kubeconfig: Path) -> None:
    sink = make_sink(f"kubernetes:{kubeconfig}?context=stranger", {})
    with pytest.raises(SinkUnreachable, match="401"):
        sink.create(stored(rv=7))
    sink.close()


def test_in_a_cluster_it_uses_the_service_account_and_notices_a_new_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted, tls = make_certificate(tmp_path, "IP:127.0.0.1")
    account = tmp_path / "serviceaccount"
    account.mkdir()
    (account / "ca.crt").write_bytes(trusted.read_bytes())
    (account / "namespace").write_text("default")
    (account / "token").write_text(TOKEN)
    api = ApiServer(token=TOKEN)
    with serving(api, tls=tls) as url:
        monkeypatch.setattr(kubernetes, "SERVICE_ACCOUNT", str(account))
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", url.rsplit(":", 1)[1])
        sink = make_sink("kubernetes:", {})
        first = sink.create(stored(rv=7))
        api.token = "rotated"
        (account / "token").write_text("rotated")
        event = stored(rv=8, count=2)
        sink.patch(event, patch_of(event, first))
        sink.close()
    assert in_cluster(api)["count"] == 2


def test_the_same_url_for_two_clusters_is_two_sinks(tmp_path: Path) -> None:
    names = []
    for number, server in enumerate(("https://one:6443", "https://two:6443", "https://one:6443")):
        config = write_kubeconfig(tmp_path / f"config-{number}", server)
        sink = make_sink("kubernetes:", {"KUBECONFIG": str(config)})
        names.append(sink.name)
        sink.close()
    assert (names[0] == names[2], names[0] == names[1]) == (True, False)


@pytest.mark.parametrize(
    "url",
    [
        "kubernetes:/no/such/file",
        "kubernetes:{config}?context=none",
        "kubernetes:{config}?what=1",
        "kubernetes://host/x",
    ],
)
def test_a_url_or_kubeconfig_that_will_not_do_is_a_config_error(kubeconfig: Path, url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make_sink(url.format(config=kubeconfig), {})
    assert "Error(" not in str(refused.value), "its words, not what Python shows of it"
