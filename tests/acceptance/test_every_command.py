"""Every command on a real terminal, with the bus up, away and full."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from eventbus import EventBroadcaster, ObjectReference, ObjectStore, Settings
from eventbus.broker.connection.connect import make_client
from eventbus.broker.embedded.server import EmbeddedServer
from tests.acceptance.programs import environment
from tests.acceptance.terminal import run_on_terminal
from tests.thin import thin
from tests.waiting import eventually

AWAY = "redis://127.0.0.1:1/0"
#: What every command says of a bus that is away.
NOBODY = "nothing listens there"
WARNING = "\x1b[33m"


class Answer(NamedTuple):
    """The end of a command: its exit code, and what stands on the terminal."""

    code: int
    text: str
    coloured: bool = False


class Case(NamedTuple):
    """A command and its answers; *away* None: one line, and exit code 1;  *full* None: as if nothing were wrong."""

    words: tuple[str, ...]
    up: Answer
    full: Answer | None = None
    away: Answer | None = None


def same(words: str, text: str, *, coloured: bool = False) -> Case:
    """A command that reads: it does not care whether there is room."""
    return Case(tuple(words.split()), Answer(0, text, coloured))


def anywhere(words: str, text: str) -> Case:
    """A command that does without the bus."""
    return Case(tuple(words.split()), *[Answer(0, text)] * 3)


RECORDED = ("record", "Pod/web-0", "--reason", "Probed", "--message", "by hand", "-v")
NOT_TAKEN = (
    "error: not recorded: Redis did not accept the event within 2 s: the server is out of memory: raise its maxmemory, "
    "or let the workers drain it (command not allowed"
)
NOT_SENT = "eventbus exec: 2 events not sent: "
CASES = [
    anywhere("api-resources", "coordination.k8s.io/v1"),
    anywhere("config get-contexts", "CURRENT"),
    anywhere("help status", "Usage: eventbus status"),
    anywhere("version", "Client Version: v"),
    same("describe pod web-0", "BackOff", coloured=True),
    same("events", "Pod/web-0", coloured=True),
    same("get events", "pod/web-0", coloured=True),
    same("get suppressed", "No event was suppressed"),
    same("get expected", "No event is expected"),
    same("get nodes", "No resources found"),
    same("get leases -A", "No resources found"),
    same("get all", "pod/web-0", coloured=True),
    same("wait --for=delete node/none", "condition met"),
    same("status", "No sink worker is alive"),
    same("functions load", "is there already"),
    same("functions list", "LAST USED"),
    same("functions prune", "No functions of other builds found."),
    same("format get", "THIS PROGRAM"),
    same("format upgrade", "nothing to change"),
    same("group list", "sink"),
    Case(("group", "delete", "nobody"), Answer(1, 'error: group "nobody" not found; there are: sink')),
    Case(
        ("doctor",),
        Answer(0, "STATE"),
        Answer(2, "% of maxmemory is used", coloured=True),
        Answer(2, NOBODY, coloured=True),
    ),
    Case(RECORDED, Answer(0, "event recorded"), Answer(1, NOT_TAKEN)),
    same("dead list", "There are no dead letters."),
    same("options get", "options version"),
    Case(("options", "set", "burst=30"), Answer(0, "version"), Answer(1, "error: the server is out of memory")),
    Case(
        ("heartbeat", "told", "--for", "1h"),
        Answer(0, ""),
        Answer(1, "error: the bus is full"),
    ),
    Case(
        ("delete", "node/told"),
        Answer(1, 'Error from server (NotFound): nodes "told" not found'),
    ),
    Case(
        ("exec", "--object", "Job/told", "--", "sh", "-c", "echo ran; exit 3"),
        Answer(3, "ran"),
        Answer(3, NOT_SENT + "the server is out of memory"),
        Answer(3, NOT_SENT + AWAY),
    ),
    Case(
        ("silence", "add", "kind=Job", "--for", "1h"),
        Answer(0, "-"),
        Answer(1, "error: the bus is full"),
    ),
    Case(("silence", "expire", "none"), Answer(1, 'Error from server (NotFound): silences.eventbus.dev "none"')),
    Case(("ack", "pod/none"), Answer(1, "there are no events about pod/none in namespace default")),
    anywhere("acl --role reader", "ACL SETUSER"),
    anywhere("kubeconfig", "current-context: eventbus"),
    anywhere("down", "no embedded server is running"),
]
BY_NAME = [pytest.param(case, id=" ".join(case.words[:2])) for case in CASES]


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, str]]:
    """The urls of a bus that is up and of one whose server is full; each knows one event, of a pod that fails."""
    with tempfile.TemporaryDirectory(prefix="eb") as folder:
        made = {name: EmbeddedServer(Path(folder, name)) for name in ("up", "full")}
        try:
            urls = {name: server.start() for name, server in made.items()}
            for url in urls.values():
                _record(url)
            with make_client(urls["full"]) as client:
                client.config_set("maxmemory", 1)
            yield urls
        finally:
            for server in made.values():
                server.stop()


def _record(url: str) -> None:
    settings = Settings(worker_block_ms=100)
    with ObjectStore.open(url, settings=settings) as store, EventBroadcaster(url, settings=settings) as broadcaster:
        recorder = broadcaster.new_recorder("kubelet")
        recorder.event(ObjectReference("Pod", "default", "web-0"), "Warning", "BackOff", "restarting")
        broadcaster.start_recording_to_sink()
        assert broadcaster.flush(60)
        eventually(lambda: store.list().items)


@pytest.fixture
def env(short_path: Path) -> dict[str, str]:
    found = environment(AWAY, "eb", flush_s="2", state_dir=str(short_path))
    return {name: text for name, text in found.items() if name != "NO_COLOR"}


def check(words: tuple[str, ...], wanted: Answer, env: dict[str, str], *, afresh: bool = False) -> str:
    code, terminal = run_on_terminal(*words, env=env, columns=250, afresh=afresh)
    assert (code, wanted.text in terminal.text, "Traceback" in terminal.text) == (wanted.code, True, False), (
        terminal.raw
    )
    assert (WARNING in terminal.raw) is wanted.coloured
    return terminal.text


@pytest.mark.parametrize("afresh", [False, pytest.param(True, marks=pytest.mark.volume)], ids=["forked", "afresh"])
@pytest.mark.parametrize("case", BY_NAME)
def test_with_the_bus_up(case: Case, env: dict[str, str], servers: dict[str, str], afresh: bool) -> None:
    # a busy machine may need long for what is tried but shortly where it cannot be done
    env |= {"EVENTBUS_REDIS_URL": servers["up"], "EVENTBUS_FLUSH_S": "20"}
    check(case.words, case.up, env, afresh=afresh)  # afresh: each has been seen to import what it needs


@pytest.mark.parametrize("case", thin(BY_NAME, lambda case: case.values[0].full is not None))
def test_with_the_server_full(case: Case, env: dict[str, str], servers: dict[str, str]) -> None:
    check(case.words, case.full or case.up, env | {"EVENTBUS_REDIS_URL": servers["full"]})


@pytest.mark.parametrize("case", BY_NAME)
def test_with_the_bus_away(case: Case, env: dict[str, str]) -> None:
    text = check(case.words, case.away or Answer(1, f"error: {AWAY}: {NOBODY}"), env)
    if case.away is None:
        assert text.count("\n") == 1
    if case.words[0] == "exec":
        assert text.startswith("ran\n")


def test_no_colour_where_none_is_wanted(env: dict[str, str], servers: dict[str, str]) -> None:
    plain = env | {"EVENTBUS_REDIS_URL": servers["up"], "NO_COLOR": "1"}
    for case in CASES:
        if case.up.coloured:
            check(case.words, case.up._replace(coloured=False), plain)


def test_no_command_is_left_out() -> None:
    from eventbus.workers.cli import main

    told = {case.words[0] for case in CASES}
    others = {
        "apply": "in test_kubectl_habits.py",
        "create": "in test_kubectl_habits.py",
        "logs": "in test_agent_story.py",
        "mcp": "in test_mcp.py",
        "why": "in tests/integration/test_story.py",
        "completion": "is text of the program's own",
        "postgres": "in tests/integration/test_sink_postgres_partitions.py",
        "rules": "in tests/unit/notify",
        "spool": "in tests/integration/test_spool.py",
        "up": "in test_up.py",
        "watch-systemd": "in test_watch_systemd.py",
        "worker": "in test_workers.py",
    }
    assert told | others.keys() >= set(main.list_commands(None))  # type: ignore[arg-type]  # it looks at none
