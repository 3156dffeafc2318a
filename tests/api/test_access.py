"""Who is let in: users, browsers, other sites, addresses that others reach."""

from __future__ import annotations

import base64
import http.client
import json
import os
import secrets
import signal
import socket
import struct
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from eventbus.api.auth import peers
from tests.acceptance.programs import environment, run
from tests.support.api_replay import EVENTS
from tests.support.api_worker import ApiWorker, api_worker, with_users
from tests.support.metrics import value
from tests.thin import one
from tests.waiting import eventually

NOBODY = 65534
JSON = "application/json"


def test_a_token_names_its_user(users_worker: ApiWorker) -> None:
    review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    for token, name in (("admin-token", "admin"), ("reader-token", "reader"), ("nobody-token", "nobody")):
        answer = users_worker.call("POST", review, {}, Authorization=f"Bearer {token}")
        assert answer.json["status"]["userInfo"]["username"] == name


@pytest.mark.parametrize("header", ["", "Bearer wrong", "Bearer ", "Basic YTpi", "Bearer admin-token-and-more"])
def test_where_there_are_users_loopback_asks_for_a_token(users_worker: ApiWorker, header: str) -> None:
    answer = users_worker.call("GET", EVENTS, Authorization=header)
    assert answer.status == 401
    assert answer.json["reason"] == "Unauthorized"


def test_health_is_open_to_whoever_asks(users_worker: ApiWorker) -> None:
    for path in ("/healthz", "/livez", "/readyz", "/readyz/redis", "/livez?verbose"):
        assert users_worker.call("GET", path, Authorization="").status == 200
    for path in ("/healthzX", "/readyz/", "/livez/ping/x", "/healthz/../api/v1/events", "/livez%2Fping"):
        assert users_worker.call("GET", path, Authorization="").status == 401
    assert users_worker.call("POST", "/healthz", Authorization="").status == 401


def test_each_check_is_named_to_who_asks_for_that_whatever_they_give(users_worker: ApiWorker) -> None:
    for path in ("/readyz?verbose", "/readyz?verbose=0"):
        assert users_worker.call("GET", path).data.startswith(b"[+]ping ok\n")


def test_who_is_refused_is_told_by_whose_word_and_where_and_admins_what_it_takes(users_worker: ApiWorker) -> None:
    def told(path: str, token: str, method: str = "GET") -> str:
        return str(users_worker.call(method, path, Authorization=f"Bearer {token}").json["message"])

    secrets = "/api/v1/namespaces/default/secrets"
    assert told(secrets, "nobody-token").endswith('in API group "" in the namespace "default"')
    assert "--grant operator=user:admin" in told(secrets, "admin-token")
    assert told("/api/v1/namespaces/team", "nobody-token").endswith('in API group "" in the namespace "team"')
    assert told("/metrics", "nobody-token") == 'forbidden: User "nobody" cannot get path "/metrics"'


def test_a_reader_reads_and_writes_nothing(users_worker: ApiWorker) -> None:
    reader = "Bearer reader-token"
    assert users_worker.call("GET", EVENTS, Authorization=reader).status == 200
    for method, path in (
        ("POST", EVENTS),
        ("DELETE", EVENTS),
        ("DELETE", "/api/v1/nodes/x"),
        ("POST", "/api/v1/nodes"),
    ):
        answer = users_worker.call(method, path, {}, Authorization=reader)
        assert answer.status == 403
        assert 'User "reader" cannot' in answer.json["message"]


@pytest.fixture(scope="module")
def recording_worker(embedded_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiWorker]:
    """A worker that holds the event `private`, asked by a user who may record and not read."""
    folder, prefix = tmp_path_factory.mktemp("recording"), f"t{secrets.token_hex(6)}"
    options = (*with_users(folder), "--grant", "record=user:nobody")
    about = {"metadata": {"name": "private"}, "involvedObject": {"namespace": "default", "name": "hidden-pod"}}
    said = {"message": "hidden words", "reason": "Hidden", "reportingComponent": "hidden component"}
    with api_worker(embedded_url, prefix, folder, *options, token="nobody-token") as worker:
        made = worker.call("POST", EVENTS, about | said, Authorization="Bearer admin-token")
        assert made.status == 201
        yield worker


@pytest.mark.parametrize("sort", ["merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"])
@pytest.mark.parametrize("patch", [{}, {"count": 5}, {"eventTime": "2026-01-01T00:00:00.000000Z"}, {"count": "many"}])
def test_who_may_record_and_not_read_is_shown_only_what_he_has_sent(
    recording_worker: ApiWorker, sort: str, patch: dict[str, Any]
) -> None:
    body = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "private"}} | patch
    for shape in ("application/json", "application/json;as=Table;g=meta.k8s.io;v=v1", "application/yaml"):
        answer = recording_worker.call(
            "PATCH", f"{EVENTS}/private?fieldManager=t", body, Content_Type=f"application/{sort}", Accept=shape
        )
        assert answer.status in (200, 400, 422)
        assert b"idden" not in answer.data
        if answer.status == 200 and shape == JSON:
            assert answer.json.get("count") == patch.get("count")
            assert answer.json["metadata"]["name"] == "private"
            assert answer.json["metadata"]["uid"]
            assert answer.json["metadata"]["resourceVersion"]


def test_who_may_record_and_not_read_is_shown_nothing_of_what_he_replaces(recording_worker: ApiWorker) -> None:
    about = {"metadata": {"name": "replaced"}, "involvedObject": {"namespace": "default"}}
    hidden = about | {"message": "hidden words", "reason": "Hidden", "source": {"component": "hidden component"}}
    assert recording_worker.call("POST", EVENTS, hidden, Authorization="Bearer admin-token").status == 201
    answer = recording_worker.call("PUT", f"{EVENTS}/replaced", about, Content_Type=JSON)
    assert (answer.status, b"idden" in answer.data) == (200, False)


def test_who_may_record_and_not_read_may_send_no_json_patch(recording_worker: ApiWorker) -> None:
    """Its operations read: `test` says whether a guess is right."""
    guess = [{"op": "test", "path": "/message", "value": "hidden words"}]
    media_type = "application/json-patch+json"
    answer = recording_worker.call("PATCH", f"{EVENTS}/private", guess, Content_Type=media_type)
    assert (answer.status, "send a merge patch" in answer.json["message"]) == (403, True)
    admin = "Bearer admin-token"
    assert (
        recording_worker.call("PATCH", f"{EVENTS}/private", guess, Content_Type=media_type, Authorization=admin).status
        == 200
    )


@pytest.mark.parametrize(
    ("path", "code", "caching"),
    [
        (EVENTS, 200, "no-store"),
        (f"{EVENTS}?watch=1&timeoutSeconds=1", 200, "no-store"),
        (f"{EVENTS}/none", 404, "no-store"),
        ("/eventbus/v1/bus", 200, "no-store"),
        ("/eventbus/v1/stream?timeoutSeconds=1", 200, "no-store"),
        ("/metrics", 200, "no-store"),
        ("/readyz", 200, "no-store"),
        ("/" + "a" * 40_000, 431, "no-store"),
        ("/openapi/v3/api/v1", 200, "no-cache"),
        ("/page/", 200, "no-cache"),
    ],
)
def test_no_answer_is_guessed_at_or_kept(local_worker: ApiWorker, path: str, code: int, caching: str) -> None:
    connection = local_worker.connection()
    connection.request("GET", path)
    answer = connection.getresponse()
    connection.close()
    assert answer.status == code
    assert (answer.headers["X-Content-Type-Options"], answer.headers["Cache-Control"]) == ("nosniff", caching)


@pytest.mark.parametrize("header", ["Impersonate_User", "Impersonate_Group", "Impersonate_Uid"])
def test_nobody_can_ask_as_somebody_else(users_worker: ApiWorker, header: str) -> None:
    resource = header.partition("_")[2].lower() + "s"
    answer = users_worker.call("DELETE", f"{EVENTS}/x", **{header: "reader"})
    assert answer.status == 403
    assert answer.json["message"].startswith(
        f'{resource} "reader" is forbidden: User "admin" cannot impersonate resource "{resource}" in API group ""'
    )


def test_processes_of_our_own_user_are_admins_and_no_operators(local_worker: ApiWorker) -> None:
    review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

    def allowed(verb: str, resource: str) -> bool:
        spec = {"resourceAttributes": {"verb": verb, "resource": resource, "namespace": "default"}}
        found: bool = local_worker.call("POST", review, {"spec": spec}).json["status"]["allowed"]
        return found

    assert allowed("create", "events")
    assert not allowed("create", "secrets")
    assert not allowed("list", "widgets")


def test_the_peer_of_a_connection_is_known_by_its_uid() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        accepted, _ = server.accept()
        with accepted:
            ends = accepted.getpeername(), accepted.getsockname()
            assert peers.tcp_peer_uid(*ends) == os.getuid()
            assert peers.uid_by_proc(*ends) == os.getuid()
            assert peers.tcp_peer_uid(("127.0.0.1", 1), ends[1]) is None


@pytest.mark.parametrize("ends", ["a close", "a reset", "half a close"])
def test_the_peer_of_a_connection_that_its_client_has_ended_is_unknown(ends: str) -> None:
    """The kernel gives a socket without a process to root, whoever it was."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        if ends == "a reset":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        both = client.getsockname(), server.getsockname()
        client.shutdown(socket.SHUT_WR) if ends == "half a close" else client.close()
        assert peers.tcp_peer_uid(*both) is None
        with pytest.raises(ValueError, match=r"no such socket|closing"):
            peers.uid_by_proc(*both)


def closing(port: int) -> list[str]:
    """The sockets that were closed towards *port*, and whose end the kernel has not yet sent."""
    sockets = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [fields[1] for fields in sockets if fields[2].endswith(f":{port:04X}") and fields[3] == "04"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may ask as another user, and only root's worker was deceived")
@pytest.mark.parametrize("method", one(["PUT", "DELETE"]))
def test_another_user_who_closes_at_once_is_nobody(local_worker: ApiWorker, method: str) -> None:
    """The worker asked for the owner of a socket that none had any more, was told root, and took that for itself."""
    about = {"metadata": {"name": "foreign"}, "involvedObject": {"namespace": "default"}}
    body = json.dumps(about).encode() if method == "PUT" else b""
    if method == "DELETE":
        assert local_worker.call("POST", EVENTS, about).status == 201
    where = urlsplit(local_worker.url)
    head = f"{method} {EVENTS}/foreign HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    def answered() -> float:
        text = local_worker.call("GET", "/metrics").data.decode()
        return value(text, "eventbus_apiserver_request_total", verb=method)

    before = answered()
    local_worker.program.signal(signal.SIGSTOP)  # it finds them closed whenever it looks
    child = os.fork()
    if not child:
        try:
            os.setuid(NOBODY)
            for _ in range(60):
                with socket.create_connection((where.hostname, where.port)) as connection:
                    connection.sendall(head + body)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    eventually(lambda: not closing(where.port or 0))
    local_worker.program.signal(signal.SIGCONT)
    eventually(lambda: answered() >= before + 60)
    assert local_worker.call("DELETE", f"{EVENTS}/foreign").status == (404 if method == "PUT" else 200)


def test_a_unix_socket_serves_our_own_user_alone(
    embedded_url: str, prefix: str, tmp_path: Path, short_path: Path
) -> None:
    path = short_path / "api.sock"
    with api_worker(embedded_url, prefix, tmp_path, "--listen", f"unix:{path}") as worker:
        assert worker.url == f"unix:{path}"
        assert path.stat().st_mode & 0o777 == 0o600
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(path))
        connection.request("GET", EVENTS)
        answer = connection.getresponse()
        assert answer.status == 200
        answer.read()
        connection.close()
        worker.program.stop()
    assert not path.exists()


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_a_page_of_another_site_is_refused(local_worker: ApiWorker, headers: dict[str, str]) -> None:
    for method in ("GET", "POST"):
        assert local_worker.call(method, EVENTS, **headers).status == 403


@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
@pytest.mark.parametrize("origin", ["http://evil.example", ""])
def test_no_answer_lets_another_site_read_it(local_worker: ApiWorker, method: str, origin: str) -> None:
    headers = {"Origin": origin or local_worker.url, "Access_Control_Request_Method": "POST"}
    answer = local_worker.call(method, EVENTS, **headers)
    assert answer.status == (403 if origin else {"GET": 200, "OPTIONS": 405}[method])
    assert not [name for name in answer.headers if name.lower().startswith("access-control-")]


@pytest.mark.volume
def test_grants_of_a_file_change_while_it_is_served_and_an_error_in_it_is_reported(
    embedded_url: str, prefix: str, tmp_path: Path
) -> None:
    grants = tmp_path / "grants"
    grants.write_text("view=user:nobody\n")
    options = (*with_users(tmp_path), "--grants-file", str(grants), "--metrics-port", "127.0.0.1:0")
    with api_worker(embedded_url, prefix, tmp_path, *options, token="nobody-token") as worker:
        assert worker.call("GET", EVENTS).status == 200
        grants.write_text("view=user:nobody\nview:everybody\n")
        eventually(lambda: worker.call("GET", EVENTS).status == 200 and "line 2" in worker.program.err)
        port = worker.program.err.partition("on port ")[2].split()[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as reply:
            labels = b'component="eventbus-api",group="api",partition="0"'
            assert b"eventbus_worker_files_invalid{%s} 1.0" % labels in reply.read()
        own = worker.call("GET", "/metrics", Authorization="Bearer admin-token").data
        assert b'eventbus_worker_files_invalid{component="eventbus-api"} 1.0' in own
        doctor = environment(embedded_url, prefix)
        eventually(lambda: "the previous content stays in use" in run("doctor", env=doctor).stdout)
        grants.write_text("# nobody\n")
        eventually(lambda: worker.call("GET", EVENTS).status == 403)
        assert worker.call("GET", EVENTS, Authorization="Bearer reader-token").status == 200, "it is a fixed grant"


def test_no_token_is_logged_and_the_audit_has_its_user(embedded_url: str, prefix: str, tmp_path: Path) -> None:
    options = (*with_users(tmp_path), "--audit")
    with api_worker(embedded_url, prefix, tmp_path, *options, token="admin-token") as worker:
        about = {"metadata": {"name": "a"}, "involvedObject": {"namespace": "default"}}
        assert worker.call("POST", EVENTS, about).status == 201
        bearer = "base64url.bearer.authorization.k8s.io." + base64.urlsafe_b64encode(b"wrong-token").decode().strip("=")
        for headers in (
            {"Authorization": "Bearer wrong-token"},
            {"Authorization": "", "Sec_WebSocket_Protocol": bearer},
            {"Authorization": "", "Cookie": f"eventbus-{urlsplit(worker.url).port}=wrong-token"},
            {"Authorization": "wrong-token"},
        ):
            assert worker.call("POST", EVENTS, about, **headers).status == 401
        sign_in = {"Content_Type": JSON, "Origin": worker.url, "Authorization": ""}
        assert worker.call("POST", "/eventbus/v1/session", {"token": "wrong-token"}, **sign_in).status == 401
        eventually(lambda: worker.program.err.count("POST") >= 5)
        assert "admin" in worker.program.err
        assert "-token" not in worker.program.err.replace("--token-file", "")
        assert bearer not in worker.program.err


def test_a_page_of_our_own_is_served(local_worker: ApiWorker) -> None:
    answer = local_worker.call("GET", EVENTS, Origin=local_worker.url, Sec_Fetch_Site="same-origin")
    assert answer.status == 200


def test_a_body_that_a_form_can_send_is_refused_from_a_browser(local_worker: ApiWorker) -> None:
    own = {"Origin": local_worker.url}
    assert local_worker.call("POST", EVENTS, b"{}", **own).status == 415
    assert local_worker.call("POST", EVENTS, b"{}", Content_Type="text/plain", **own).status == 415
    assert local_worker.call("POST", EVENTS, b"{}", Content_Type="application/x-www-form-urlencoded").status == 415


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--listen", "0.0.0.0:0"), "has no TLS and no users"),
        (("--listen", "[::]:0"), "is reached by others"),
        (("--listen", "example.invalid:0"), "is reached by others"),
        (("--listen", "nonsense"), "give HOST:PORT"),
        (("--grant", "root=user:me"), "ROLE=user:NAME"),
        (("--token-file", "/nowhere/tokens.csv"), "No such file"),
    ],
)
def test_a_worker_that_would_be_open_to_others_does_not_start(
    embedded_url: str, prefix: str, options: tuple[str, ...], problem: str
) -> None:
    ran = run("worker", "api", *options, env=environment(embedded_url, prefix))
    assert ran.returncode == 2
    assert problem in ran.stderr
