"""Probes of real containers: run, counted, reported."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from eventbus.agent.pods.prober import ProbeManager
from eventbus.agent.runtime.ask_container import ask
from eventbus.agent.runtime.contract import ExecResult, PodUid, ProbeResult, ProbeType, RuntimeProblem
from eventbus.model.objects.container import Container, HTTPGetAction, Probe, TCPSocketAction
from eventbus.model.objects.pod import Pod
from tests.support.certificates import make_certificate
from tests.support.runtime_world import UID, LastingZygote, RuntimeWorld, container, make_pod, runtime_world
from tests.support.webhook_server import Answer, Delivery, Endpoint, receiving
from tests.waiting import PATIENCE_S, eventually


class Probed:
    """A world and the results of its probes."""

    def __init__(self, world: RuntimeWorld) -> None:
        self.world = world
        self.results: list[ProbeResult] = []
        self.room = True
        self.manager = ProbeManager(runtime=world.runtime, report=self.tell, events=world.told, clock=world.clock)

    def tell(self, result: ProbeResult) -> bool:
        if self.room:
            self.results.append(result)
        return self.room

    def run(self, **probes: Any) -> Pod:
        """Run a pod with *probes*, which may take long on a busy machine: the API's one second is too short there."""
        for name, probe in probes.items():
            if name.endswith("Probe"):
                probe.setdefault("timeoutSeconds", 60)
        pod = make_pod(containers=[container("main", "exec sleep 1000", **probes)])
        self.world.sync(pod)
        self.manager.add_pod(pod)
        return pod

    def ready(self, pod: Pod) -> bool:
        return self.manager.ready(UID, pod.spec.containers[0], self.world.run())


@pytest.fixture
def probed(tmp_path: Path, zygote: LastingZygote) -> Iterator[Probed]:
    with runtime_world(tmp_path / "state", zygote) as world:
        made = Probed(world)
        yield made
        made.manager.stop()


class Answering(Endpoint):
    def answer(self, delivery: Delivery) -> Answer:
        return Answer(200 if delivery.path == "/well" and delivery.headers["x-who"] == "me" else 503)


@pytest.fixture
def http_port() -> Iterator[int]:
    with receiving(Answering()) as port:
        yield port


@contextmanager
def dribbling(whole: bytes, context: ssl.SSLContext | None = None) -> Iterator[int]:
    """Serve one connection: *whole*, a byte each 50 ms. Yields: the port."""

    def serve() -> None:
        with suppress(OSError), server.accept()[0] as plain:
            line = context.wrap_socket(plain, server_side=True) if context is not None else plain
            with line:
                line.recv(65_536)  # the request
                for place in range(len(whole)):
                    line.sendall(whole[place : place + 1])
                    time.sleep(0.05)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("scheme", ["HTTP", "HTTPS"])
@pytest.mark.parametrize(
    "whole",
    [b"HTTP/1.0 200 OK\r\nX-Slow: " + b"x" * 60 + b"\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * 60],
    ids=["head", "body"],
)
def test_a_probe_has_its_timeout_as_a_whole_and_not_for_each_byte(
    probed: Probed, tmp_path: Path, scheme: str, whole: bytes
) -> None:
    context = make_certificate(tmp_path, "IP:127.0.0.1")[1] if scheme == "HTTPS" else None
    with dribbling(whole, context) as port:
        probe = Probe(http_get=HTTPGetAction(scheme=scheme, port=port))
        answer = ask(
            probed.world.runtime.exec_in, UID, Container(name="main"), probe, 0.3
        )  # of the four seconds that it takes
    assert answer == (False, f'Get "{scheme.lower()}://127.0.0.1:{port}": timed out')


def test_a_probe_goes_on_to_the_next_address_where_the_system_has_no_sockets_of_a_family(
    probed: Probed, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = [(family, socket.SOCK_STREAM, 0, "", server.getsockname()) for family in (255, socket.AF_INET)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_named: found)
        probe = Probe(tcp_socket=TCPSocketAction(port=server.getsockname()[1]))
        assert ask(probed.world.runtime.exec_in, UID, Container(name="main"), probe, 10.0) == (True, "")


def test_a_container_without_probes_is_ready_when_it_runs(probed: Probed) -> None:
    pod = probed.run()

    assert probed.ready(pod)
    assert not probed.manager.ready(UID, pod.spec.containers[0], None)


def test_a_liveness_probe_that_fails_is_told_with_an_event_a_failure(probed: Probed) -> None:
    exec = {"command": ["sh", "-c", "echo broken; exit 1"]}
    probed.run(livenessProbe={"exec": exec, "periodSeconds": 1, "failureThreshold": 1})

    eventually(lambda: probed.results)
    result = probed.results[0]
    assert (result.type, result.success, result.message) == (ProbeType.LIVENESS, False, "broken")
    assert result.container_id == probed.world.run().id
    assert probed.world.told.events[-1] == (
        "Warning",
        "Unhealthy",
        "spec.containers{main}",
        "Liveness probe failed: broken",
    )


def test_a_probe_of_a_run_that_ends_meanwhile_says_nothing(probed: Probed, monkeypatch: Any) -> None:
    asked = threading.Event()

    def end_it(uid: PodUid, container: str, *_: Any) -> ExecResult:
        probed.world.runtime.kill_pod(uid, None, 0.0)
        asked.set()
        raise RuntimeProblem(f"container {container} does not run")

    monkeypatch.setattr(probed.world.runtime, "exec_in", end_it)
    probed.run(readinessProbe={"exec": {"command": ["true"]}, "periodSeconds": 1, "failureThreshold": 1})
    assert asked.wait(PATIENCE_S)
    eventually(lambda: not any(state.busy for state in probed.manager._states.values()))

    assert "Unhealthy" not in probed.world.told.reasons
    assert probed.results == []


def test_a_readiness_probe_makes_a_container_ready(probed: Probed) -> None:
    exec = {"command": ["test", "-e", "ready"]}
    pod = probed.run(readinessProbe={"exec": exec, "periodSeconds": 1, "failureThreshold": 1})
    eventually(lambda: probed.results)
    assert not probed.ready(pod)

    (probed.world.folder / "pods" / UID / "containers/main/ready").touch()
    eventually(lambda: probed.ready(pod))
    assert [result.success for result in probed.results] == [False, True]


def test_a_startup_probe_holds_back_the_others(probed: Probed) -> None:
    started = {"exec": {"command": ["test", "-e", "up"]}, "periodSeconds": 1, "failureThreshold": 1000}
    alive = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
    pod = probed.run(startupProbe=started, livenessProbe=alive)
    eventually(lambda: probed.manager.failed >= 1)
    assert not probed.manager.started(UID, pod.spec.containers[0], probed.world.run())
    assert probed.results == []

    (probed.world.folder / "pods" / UID / "containers/main/up").touch()
    eventually(lambda: len(probed.results) == 2)
    assert [(one.type, one.success) for one in probed.results] == [
        (ProbeType.STARTUP, True),
        (ProbeType.LIVENESS, False),
    ]


@pytest.mark.parametrize(("path", "ready"), [("/well", True), ("/ill", False)])
def test_a_get_is_judged_by_its_status(probed: Probed, http_port: int, path: str, ready: bool) -> None:
    get = {"path": path, "port": "web", "httpHeaders": [{"name": "X-Who", "value": "me"}]}
    probe = {"httpGet": get, "periodSeconds": 1, "failureThreshold": 1}
    pod = probed.run(ports=[{"name": "web", "containerPort": http_port}], readinessProbe=probe)

    eventually(lambda: probed.results)
    assert probed.ready(pod) is ready
    if not ready:
        assert probed.results[0].message == "HTTP probe failed with statuscode: 503"


def test_a_connection_is_enough_for_a_tcp_probe(probed: Probed) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pod = probed.run(readinessProbe={"tcpSocket": {"port": listener.getsockname()[1]}, "periodSeconds": 1})
        eventually(lambda: probed.ready(pod))


def test_a_probe_that_takes_too_long_has_failed(probed: Probed) -> None:
    probe = {"exec": {"command": ["sleep", "1000"]}, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 1}
    probed.run(livenessProbe=probe)

    eventually(lambda: probed.results)
    assert "timed out after 1s" in probed.results[0].message


def test_what_there_was_no_room_for_is_told_again(probed: Probed) -> None:
    probed.room = False
    probed.run(readinessProbe={"exec": {"command": ["true"]}, "periodSeconds": 1000})
    eventually(lambda: probed.manager.asked == 1)
    probed.room = True

    eventually(lambda: [one.success for one in probed.results] == [True])


def test_a_pod_that_is_removed_is_asked_no_more(probed: Probed) -> None:
    pod = probed.run(readinessProbe={"exec": {"command": ["true"]}, "periodSeconds": 1})
    eventually(lambda: probed.ready(pod))
    probed.manager.remove_pod(UID)

    assert not probed.ready(pod)
