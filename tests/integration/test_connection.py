"""Clients against real servers, and what is said when there is none or it will not have us."""

from __future__ import annotations

import contextlib
import select
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from eventbus.broker.bus import open_bus
from eventbus.broker.connection import plain_client
from eventbus.broker.connection.address import with_password
from eventbus.broker.connection.connect import check_server, connect, is_cluster, make_client
from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import BusRefused, BusUnavailable, ConfigError, EventBusError, FunctionsMissing, GroupMissing
from eventbus.settings import Settings
from tests.functions.sentinels import Watched
from tests.support.ports import free_port
from tests.waiting import PATIENCE_S, eventually

FUNCTION = "#!lua name=t\nredis.register_function('write', function(k) return redis.call('SET', k[1], '1') end)"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    with _server(tmp_path / "own") as own:
        yield own


@pytest.fixture
def client(server: EmbeddedServer) -> Iterator[redis.Redis]:
    with make_client(server.url or "") as made:
        yield made


def test_connect_reaches_the_server_and_names_itself(server_url: str) -> None:
    with connect(server_url, name="eventbus-test") as client:
        assert client.client_getname() in (b"eventbus-test", "eventbus-test")
        assert client.client_info()["resp"] == "2"


def test_check_server_tells_what_it_is(server_url: str) -> None:
    with connect(server_url) as client:
        info = check_server(client)
        assert info.kind in ("redis", "valkey")
        assert info.version >= ((7, 0) if info.kind == "redis" else (8, 0))
        assert info.maxmemory_policy == "noeviction"
        assert not info.cluster


def test_a_blocking_read_may_block_as_long_as_the_client_was_made_for(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_client, "REPLY_S", 0.2)
    # It is made for far longer than it is to block here: an answer may be late by that, on a busy machine.
    with make_client(server.url or "", block_ms=60_000) as patient, make_client(server.url or "") as hasty:
        assert patient.xread({"s": "0"}, block=600) == []
        with pytest.raises(BusUnavailable, match="in time"), redis_errors():
            hasty.xread({"s": "0"}, block=600)


def test_a_call_whose_reply_is_lost_has_run_once(tmp_path: Path) -> None:
    port = free_port()
    with (
        _server(tmp_path / "own", port=str(port)) as server,
        _losing_replies(port, to=b"INCR") as lossy_port,
        connect(f"redis://127.0.0.1:{lossy_port}") as client,
    ):
        with pytest.raises(BusUnavailable, match="connection lost"), redis_errors():
            client.incr("runs")
        with make_client(server.url or "") as direct:
            assert direct.get("runs") == b"1"


# --- who cannot be reached, or refuses: each in one line that says what to do ---


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        (f"redis://127.0.0.1:{free_port()}", r"redis://127\.0\.0\.1:\d+: nothing listens there: start"),
        ("unix:///no/such/folder/nothing.sock", "no such socket"),
        ("redis://no-such-host.invalid:6379", "name cannot be resolved"),
    ],
    ids=["port", "socket", "host"],
)
def test_an_address_without_a_server_is_told(url: str, problem: str) -> None:
    with pytest.raises(BusUnavailable, match=problem):
        connect(url)


def test_a_host_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_client, "REPLY_S", 0.1)
    with _listener(b"") as port, pytest.raises(BusUnavailable, match="does not answer in time"):
        connect(f"redis://127.0.0.1:{port}")


def test_something_that_is_not_a_redis_is_told() -> None:
    page = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
    with _listener(page) as port, pytest.raises(BusRefused, match="not a Redis: check host and port"):
        connect(f"redis://127.0.0.1:{port}")


def test_a_missing_and_a_wrong_password_are_told_apart(tmp_path: Path) -> None:
    with _server(tmp_path / "locked", requirepass="secret") as server:
        url = server.url or ""
        with pytest.raises(BusRefused, match="wants a password: set EVENTBUS_REDIS_PASSWORD"):
            connect(url)
        with pytest.raises(BusRefused, match="refused the user or the password") as caught:
            connect(with_password(url, "wrong-guess"))
        assert "wrong-guess" not in str(caught.value)
        with connect(with_password(url, "secret")) as client:
            assert client.ping()


def test_a_password_and_a_database_that_the_server_does_not_have_are_told(server: EmbeddedServer) -> None:
    with pytest.raises(BusRefused, match="has no password, but one was given"):
        connect(with_password(server.url or "", "secret"))
    with pytest.raises(BusRefused, match="no such database"):
        connect(f"{server.url}?db=99")


def test_a_user_without_the_right_to_info_which_every_role_has_is_refused(
    server: EmbeddedServer, client: redis.Redis
) -> None:
    client.acl_setuser("limited", enabled=True, passwords=["+pw"], keys=["*"], commands=["+client|setname"])
    with pytest.raises(BusRefused, match="extend its ACL"):
        connect((server.url or "").replace("unix://", "unix://limited:pw@"))


def test_a_server_that_is_too_old_is_refused() -> None:
    """No such server runs here; its answers are the ones a Redis 6.2 gives to CLIENT SETNAME and INFO."""
    body = b"# Server\r\nredis_version:6.2.14\r\nredis_mode:standalone\r\n# Cluster\r\ncluster_enabled:0\r\n"
    replies = [b"+OK\r\n", b"$%d\r\n%s\r\n" % (len(body), body)]
    cure = r"Redis 6\.2\.14; eventbus needs Redis >= 7\.0 or Valkey >= 8"
    with (
        _listener(*replies, *replies[1:]) as port,
        connect(f"redis://127.0.0.1:{port}") as client,
        pytest.raises(BusRefused, match=cure),
    ):
        check_server(client)


def test_a_server_that_evicts_is_refused_with_the_cure(client: redis.Redis) -> None:
    client.config_set("maxmemory-policy", "allkeys-lru")
    with pytest.raises(BusRefused, match=r"allkeys-lru.*CONFIG SET maxmemory-policy noeviction"):
        check_server(client)
    client.config_set("maxmemory-policy", "noeviction")
    check_server(client)


# --- TLS ---


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """A server that speaks only TLS, on a port of its own, and the certificate to trust."""
    folder = tmp_path_factory.mktemp("tls")
    _make_certificate(folder)
    with _tls_server(folder) as port:
        yield port, folder / "cert.pem"


@pytest.fixture
def tls_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("t")


def _openssl(words: str) -> None:
    program = shutil.which("openssl")
    if not program:
        pytest.skip("needs openssl")
    subprocess.run([program, *words.split()], check=True, capture_output=True, timeout=30)


_NEW_KEY = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=bus.test"


def _make_certificate(folder: Path) -> None:
    _openssl(
        f"req -x509 {_NEW_KEY} -days 2 -addext subjectAltName=IP:127.0.0.1 "
        f"-keyout {folder}/key.pem -out {folder}/cert.pem"
    )


def _make_expired_certificate(folder: Path) -> None:
    """By `ca`, since `req` takes dates from OpenSSL 3.4 on only."""
    (folder / "index").touch()
    (folder / "serial").write_text("01")
    (folder / "ca.conf").write_text(
        f"[ca]\ndefault_ca=d\n[d]\ndatabase={folder}/index\nserial={folder}/serial\nnew_certs_dir={folder}\n"
        "default_md=sha256\npolicy=p\nx509_extensions=x\n[p]\ncommonName=supplied\n[x]\nsubjectAltName=IP:127.0.0.1\n"
    )
    _openssl(f"req {_NEW_KEY} -keyout {folder}/key.pem -out {folder}/ask.pem")
    _openssl(
        f"ca -batch -selfsign -config {folder}/ca.conf -keyfile {folder}/key.pem -in {folder}/ask.pem "
        f"-startdate 20200101000000Z -enddate 20200102000000Z -out {folder}/cert.pem"
    )


@contextlib.contextmanager
def _tls_server(folder: Path, **more: str) -> Iterator[int]:
    program = shutil.which("redis-server")
    if not program:
        pytest.skip("needs redis-server with TLS: the embedded server has none")
    port = free_port()
    certificate = str(folder / "cert.pem")
    config = {"tls-port": str(port), "tls-cert-file": certificate, "tls-key-file": str(folder / "key.pem")}
    config |= {"tls-ca-cert-file": certificate, "tls-auth-clients": "no", "bind": "127.0.0.1"} | more
    server = EmbeddedServer(folder / "state", config=config, binary=Path(program))
    try:
        server.start()
        yield port
    except ConfigError as error:
        pytest.skip(f"redis-server without TLS: {error}")
    finally:
        server.stop()


def test_a_certificate_nobody_vouches_for_is_refused_with_the_option_to_set(tls: tuple[int, Path]) -> None:
    with pytest.raises(BusRefused, match=r"not trusted: add \?ssl_ca_certs="):
        connect(f"rediss://127.0.0.1:{tls[0]}")


def test_a_certificate_for_another_name_is_refused_with_its_own_cure(tls: tuple[int, Path]) -> None:
    """It is for 127.0.0.1."""
    port, certificate = tls
    with pytest.raises(BusRefused, match="its certificate is for another name") as caught:
        connect(f"rediss://localhost:{port}?ssl_ca_certs={certificate}")
    assert "ssl_ca_certs" not in str(caught.value)


def test_a_least_version_of_tls_is_obeyed(tls: tuple[int, Path]) -> None:
    port, certificate = tls
    with connect(f"rediss://127.0.0.1:{port}?ssl_ca_certs={certificate}&ssl_min_version=TLSv1.2") as client:
        assert client.ping()


def test_an_expired_certificate_is_refused_with_its_own_cure(tls_folder: Path) -> None:
    _make_expired_certificate(tls_folder)
    with _tls_server(tls_folder) as port, pytest.raises(BusRefused, match="its certificate has expired: renew") as told:
        connect(f"rediss://127.0.0.1:{port}?ssl_ca_certs={tls_folder}/cert.pem")
    assert "ssl_ca_certs=/path" not in str(told.value)


def test_a_server_that_wants_a_certificate_of_ours_is_told(tls_folder: Path) -> None:
    _make_certificate(tls_folder)
    ours = f"ssl_ca_certs={tls_folder}/cert.pem"
    with _tls_server(tls_folder, **{"tls-auth-clients": "yes"}) as port:
        url = f"rediss://127.0.0.1:{port}?{ours}"
        with pytest.raises(BusRefused, match="wants a certificate of ours: add"):
            connect(url)
        with connect(f"{url}&ssl_certfile={tls_folder}/cert.pem&ssl_keyfile={tls_folder}/key.pem") as client:
            assert client.ping()


def test_plain_words_to_a_tls_server_are_told(tls: tuple[int, Path]) -> None:
    with pytest.raises(EventBusError, match="TLS: rediss://"):
        connect(f"redis://127.0.0.1:{tls[0]}")


def test_tls_to_a_plain_server_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_client, "REPLY_S", 0.5)
    port = free_port()
    with _server(tmp_path / "plain", port=str(port)), pytest.raises(EventBusError, match="TLS"):
        connect(f"rediss://127.0.0.1:{port}")


# --- a cluster ---


@pytest.fixture(scope="module")
def cluster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster of one node that has all slots."""
    port = free_port()
    config = {"port": str(port), "bind": "127.0.0.1", "cluster-enabled": "yes", "cluster-port": str(free_port())}
    with _server(tmp_path_factory.mktemp("cluster"), **config) as server:
        with make_client(server.url or "") as node:
            node.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
            eventually(lambda: node.execute_command("CLUSTER INFO")["cluster_state"] == "ok")
        yield f"redis://127.0.0.1:{port}"


def test_a_cluster_is_recognised_and_its_client_reaches_every_slot(cluster_url: str) -> None:
    with connect(cluster_url) as client:
        assert is_cluster(client)
        for partition in range(8):
            entry = client.xadd(f"eb:{{{partition}}}:s", {"n": "1"})
            assert client.xread({f"eb:{{{partition}}}:s": "0"}) == [
                [f"eb:{{{partition}}}:s".encode(), [(entry, {b"n": b"1"})]]
            ]
        assert check_server(client).cluster


def test_a_cluster_client_runs_a_call_once_either(cluster_url: str) -> None:
    with (
        make_client(cluster_url) as node,
        _losing_replies(int(cluster_url.rpartition(":")[2]), to=b"INCR") as lossy_port,
    ):
        node.config_set("cluster-announce-port", lossy_port)
        try:
            with connect(f"redis://127.0.0.1:{lossy_port}") as client:
                assert is_cluster(client)
                with pytest.raises(BusUnavailable), redis_errors():
                    client.incr("runs")
        finally:
            node.config_set("cluster-announce-port", 0)
        assert node.get("runs") == b"1"


def test_a_node_of_a_cluster_by_its_socket_or_another_database_is_refused(tmp_path: Path, cluster_url: str) -> None:
    config = {"cluster-enabled": "yes", "port": str(free_port()), "cluster-port": str(free_port())}
    told = pytest.raises(ConfigError, match="node of a cluster: give the host and port of some of its nodes")
    with _server(tmp_path / "node", **config) as server, told:
        connect(server.url or "")
    with pytest.raises(EventBusError, match="database"):
        connect(f"{cluster_url}/1")


def test_a_cluster_without_slots_is_not_available_yet(tmp_path: Path) -> None:
    config = {"cluster-enabled": "yes", "port": str(free_port()), "cluster-port": str(free_port())}
    with _server(tmp_path / "node", **config), pytest.raises(BusUnavailable, match="no slots yet"):
        connect(f"redis://127.0.0.1:{config['port']}")


def test_several_hosts_that_are_no_cluster_are_told(tmp_path: Path) -> None:
    port = free_port()
    told = pytest.raises(ConfigError, match=r"several hosts are nodes of one cluster.*redis\+sentinel://")
    with _server(tmp_path / "own", port=str(port), bind="127.0.0.1"), told:
        connect(f"redis://127.0.0.1:{free_port()},127.0.0.1:{port}")


def test_any_of_several_hosts_finds_the_cluster(cluster_url: str) -> None:
    port = cluster_url.rpartition(":")[2]
    with connect(f"redis://127.0.0.1:{free_port()},127.0.0.1:{port}/0") as client:
        assert is_cluster(client)
        assert client.set("k", "v")


# --- sentinels ---


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    # Nothing fails over here, however long the primary is not run.
    with Watched(tmp_path_factory.mktemp("w"), replicas=1, sentinels=1, down_after_ms=600_000) as started:
        yield started


def test_sentinels_lead_to_the_primary(watched: Watched) -> None:
    with connect(watched.url) as client:
        assert client.set("k", "v")
        assert client.info("server")["tcp_port"] == watched.ports[0]
        assert not check_server(client).replica_of


def test_a_sentinel_that_is_away_is_passed_over(watched: Watched) -> None:
    with connect(f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{watched.sentinel_ports[0]}/main/0") as client:
        assert client.set("k", "v")


def test_a_sentinel_that_does_not_answer_holds_nobody_up_for_long(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_client, "SENTINEL_S", 0.1)
    with _listener(b"") as silent:

        def reached() -> bool:
            with connect(f"redis+sentinel://127.0.0.1:{silent},127.0.0.1:{watched.sentinel_ports[0]}/main/0") as client:
                return bool(client.set("k", "v"))

        # On a busy machine the other one may take longer than that as well. Each client asks the silent one first.
        eventually(reached, despite=BusUnavailable)


def test_a_name_that_no_sentinel_knows_is_told(watched: Watched) -> None:
    with pytest.raises(BusUnavailable, match="knows no primary of the name other"):
        connect(f"redis+sentinel://127.0.0.1:{watched.sentinel_ports[0]}/other/0")


def test_who_is_named_and_is_no_primary_is_not_taken(watched: Watched) -> None:
    """A sentinel that has not heard of a failover yet names one that was."""
    reply = b"*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%d\r\n" % (len(str(watched.ports[1])), watched.ports[1])
    with (
        _listener(b"+OK\r\n", reply) as liar,
        pytest.raises(BusUnavailable, match=r"no primary: wait for the failover.*named by a sentinel, is no primary"),
    ):
        connect(f"redis+sentinel://127.0.0.1:{liar}/main/0")


def test_the_address_of_a_sentinel_is_told_with_the_url_to_say(watched: Watched) -> None:
    with pytest.raises(BusRefused, match=r"is a sentinel.*redis\+sentinel://host:26379/main/0"):
        connect(f"redis://127.0.0.1:{watched.sentinel_ports[0]}")


def test_the_address_of_a_replica_is_told_with_that_of_the_primary(watched: Watched, prefix: str) -> None:
    with pytest.raises(BusUnavailable, match=f"is a replica of 127.0.0.1:{watched.ports[0]}") as raised:
        open_bus(watched.server_url(1), Settings(prefix=prefix))
    assert raised.value.cure.startswith("give the primary's address")  # the doctor has no other


# --- what servers really answer ---


def test_a_function_and_a_group_that_are_not_there_are_missing(client: redis.Redis) -> None:
    with pytest.raises(FunctionsMissing), redis_errors():
        client.fcall("eb1_publish", 0)
    with pytest.raises(GroupMissing), redis_errors():
        client.xreadgroup("g", "c", {"s": ">"})


def test_a_stream_deleted_under_a_blocked_reader_is_a_missing_group(
    server: EmbeddedServer, client: redis.Redis
) -> None:
    client.xgroup_create("s", "g", mkstream=True)
    with make_client(server.url or "", block_ms=5_000) as reader:
        destroyer = threading.Timer(0.1, client.delete, ["s"])
        destroyer.start()
        with pytest.raises(GroupMissing), redis_errors():
            reader.xreadgroup("g", "c", {"s": ">"}, block=5_000)
        destroyer.join()


def test_a_full_server_is_unavailable_and_says_why(client: redis.Redis) -> None:
    client.function_load(FUNCTION)
    client.config_set("maxmemory", 1)
    for write in (lambda: client.set("k", "v"), lambda: client.fcall("write", 1, "k")):
        with pytest.raises(BusUnavailable, match="out of memory"), redis_errors():
            write()


def test_a_function_that_may_not_write_for_the_user_is_refused(server: EmbeddedServer, client: redis.Redis) -> None:
    client.function_load(FUNCTION)
    client.acl_setuser("u", enabled=True, passwords=["+pw"], keys=["*"], commands=["+fcall", "+client|setname"])
    url = (server.url or "").replace("unix://", "unix://u:pw@")
    with make_client(url) as limited, pytest.raises(BusRefused, match="ACL"), redis_errors():
        limited.fcall("write", 1, "k")


def test_a_replica_is_unavailable_for_writes_and_without_its_primary_for_reads(client: redis.Redis) -> None:
    client.replicaof("127.0.0.1", free_port())
    with pytest.raises(BusUnavailable, match="is a replica"), redis_errors():
        client.set("k", "v")
    client.config_set("replica-serve-stale-data", "no")
    with pytest.raises(BusUnavailable, match="without its primary"), redis_errors():
        client.get("k")
    client.replicaof("NO", "ONE")


def test_a_server_busy_in_a_script_is_unavailable(server: EmbeddedServer, client: redis.Redis) -> None:
    client.config_set("busy-reply-threshold", 1)
    with make_client(server.url or "") as blocker:
        script = threading.Thread(target=_run_until_killed, args=(blocker,))
        script.start()
        try:
            with pytest.raises(BusUnavailable, match="busy in a script"):
                _call_until_refused(client)
        finally:
            client.script_kill()
            script.join()


def _call_until_refused(client: redis.Redis) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with redis_errors():
            client.get("k")
        time.sleep(0.005)


def _run_until_killed(client: redis.Redis) -> None:
    with contextlib.suppress(redis.RedisError):
        client.eval("while true do end", 0)


@contextlib.contextmanager
def _server(directory: Path, **config: str) -> Iterator[EmbeddedServer]:
    server = EmbeddedServer(directory, config=config)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def _listener(*replies: bytes) -> Iterator[int]:
    """A port that answers the first connection's requests with *replies*, in turn, then falls silent."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        done = threading.Event()

        def serve() -> None:
            with contextlib.suppress(OSError):
                accepted, _ = listening.accept()
                with accepted:
                    for reply in replies:
                        accepted.recv(4096)
                        accepted.sendall(reply)
                    done.wait(PATIENCE_S)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            done.set()
            thread.join()


@contextlib.contextmanager
def _losing_replies(target: int, *, to: bytes) -> Iterator[int]:
    """A port that leads to *target*, until a request has *to* in it: that one's reply is lost with the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        pumps: list[threading.Thread] = []

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    pumps.append(threading.Thread(target=pump, args=(listening.accept()[0],)))
                    pumps[-1].start()

        def pump(near: socket.socket) -> None:
            with near, socket.create_connection(("127.0.0.1", target)) as far, contextlib.suppress(OSError):
                lose = False
                while True:
                    for side in select.select([near, far], [], [])[0]:
                        data = side.recv(65_536)
                        if not data or (side is far and lose):
                            return
                        lose = lose or (side is near and to in data)
                        (far if side is near else near).sendall(data)

        acceptor = threading.Thread(target=accept)
        acceptor.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            for thread in [acceptor, *pumps]:
                thread.join(PATIENCE_S)
