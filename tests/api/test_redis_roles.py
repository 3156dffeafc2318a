"""An API worker whose user in Redis has the role deploy and no other does all that it is asked for."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from eventbus.broker import function_library
from eventbus.broker.acl import Role, acl_setuser
from eventbus.broker.connection.connect import make_client
from tests.support.api_replay import EVENTS
from tests.support.api_worker import ApiWorker, api_worker

ABOUT = {"kind": "Pod", "namespace": "default", "name": "web-0"}


@pytest.fixture(params=["1", "2"], ids=["1 partition", "2 partitions"])
def worker(request: pytest.FixtureRequest, embedded_url: str, prefix: str, tmp_path: Path) -> Iterator[ApiWorker]:
    password = secrets.token_hex(16)
    where = urlsplit(embedded_url)
    url = where._replace(netloc=f"{prefix}:{password}@{where.netloc.rpartition('@')[2]}").geturl()
    with make_client(embedded_url) as admin:
        function_library.load(admin)
        admin.execute_command(
            "ACL", "SETUSER", *acl_setuser(Role.DEPLOY, user=prefix, password=password, prefix=prefix)
        )
        try:
            with api_worker(url, prefix, tmp_path, partitions=request.param) as started:
                yield started
        finally:
            admin.acl_deluser(prefix)


def test_it_lists_watches_writes_and_records(worker: ApiWorker) -> None:
    version = worker.call("GET", EVENTS).json["metadata"]["resourceVersion"]
    with worker.watch(f"{EVENTS}?watch=1&resourceVersion={version}") as frames:
        made = worker.call("POST", EVENTS, {"metadata": {"name": "one"}, "involvedObject": ABOUT})
        assert made.status == 201, made.data
        assert next(frames)["object"]["metadata"]["name"] == "one"
    for headers in ({}, {"Idempotency-Key": "once"}):
        recorded = worker.call("POST", "/eventbus/v1/record", {"involvedObject": ABOUT, "reason": "Done"}, **headers)
        assert recorded.json == {"accepted": 1, "refused": []}, recorded.data
    for path in ("/start", ""):
        assert worker.call("GET", f"/eventbus/v1/ping/default/Pod/web-0{path}").data == b"OK\n"
    patched = worker.call(
        "PATCH", f"{EVENTS}/one", {"metadata": {"labels": {"a": "b"}}}, Content_Type="application/merge-patch+json"
    )
    assert patched.status == 200, patched.data
    node = worker.call("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})
    assert node.status == 201, node.data
    assert worker.call("DELETE", f"{EVENTS}/one").status == 200
    assert worker.call("DELETE", "/api/v1/nodes/n1").status == 200
    for path in (
        "events",
        "histogram",
        "status",
        "suppressed",
        "sinks",
        "expected",
        "dead",
        "notifications",
        "why?kind=Pod&namespace=default&name=x",
    ):
        assert worker.call("GET", f"/eventbus/v1/{path}").status == 200, path
    for path in ("alerts", "alerts/groups", "silences", "receivers", "status"):
        assert worker.call("GET", f"/alertmanager/api/v2/{path}").status == 200, path


def test_a_refused_password_is_no_fault_of_its_clients(worker: ApiWorker, embedded_url: str, prefix: str) -> None:
    event = {"involvedObject": ABOUT, "reason": "Done"}
    with make_client(embedded_url) as admin:
        admin.execute_command("ACL", "SETUSER", prefix, "resetpass", ">other")
        admin.execute_command("CLIENT", "KILL", "USER", prefix)
    for method, path, body in (("POST", "/eventbus/v1/record", event), ("GET", EVENTS, None)):
        refused = worker.call(method, path, body)
        assert (refused.status, refused.headers["Retry-After"]) == (503, "1"), refused.data
