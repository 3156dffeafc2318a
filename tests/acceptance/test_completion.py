"""Tab offers commands without delay, names where the bus is up, nothing and no noise where it is away."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from eventbus import EventBroadcaster, ObjectReference, ObjectStore, Settings
from eventbus.broker.bus import open_bus
from eventbus.broker.exports import ExportStore
from eventbus.broker.notifications import NotifyStore
from eventbus.model.event import ObjectMeta
from eventbus.model.kinds import SILENCE
from eventbus.model.objects.silence import Silence, SilenceMatcher, SilenceSpec
from tests.acceptance.programs import environment, run
from tests.acceptance.terminal import Terminal
from tests.thin import one
from tests.waiting import eventually

SILENCED = "16c07010-bd85-474d-acde-6636a1045961"


@pytest.fixture
def env(embedded_url: str, prefix: str) -> Iterator[dict[str, str]]:
    """A bus with events about five objects in three namespaces, and an external sink."""
    settings = Settings(redis_url=embedded_url, prefix=prefix, partitions=3, worker_block_ms=50)
    with ObjectStore.open(settings=settings) as store, EventBroadcaster(settings=settings) as broadcaster:
        broadcaster.start_recording_to_sink()
        recorder = broadcaster.new_recorder("kubelet")
        for namespace, kind, name in (
            ("default", "Pod", "web-0"),
            ("default", "Pod", "db-0"),
            ("default", "Job", "web"),
            ("shop", "Pod", "cart-0"),
            ("shop-b", "Pod", "cart-1"),
        ):
            recorder.event(ObjectReference(kind, namespace, name), "Normal", "Started", "")
        eventually(lambda: len(store.list().items) == 5)
        now = datetime.now(UTC)
        spec = SilenceSpec((SilenceMatcher("kind", "Pod"),), now, now + timedelta(hours=1))
        store.objects(SILENCE).create(Silence(metadata=ObjectMeta(name=SILENCED), spec=spec))
        bus = open_bus(embedded_url, settings)
        with bus.client() as client:
            assert ExportStore(bus=bus, client=client, partition=1, sink="file-x", consumer="test").acquire().ours
            assert NotifyStore(bus=bus, client=client, consumer="test").acquire("rules").ours
        yield environment(embedded_url, prefix) | {"EVENTBUS_COMPLETION_TIMEOUT_S": "100"}


@pytest.fixture
def away(prefix: str) -> dict[str, str]:
    return environment("redis://127.0.0.1:1/0", prefix)


def offered(env: dict[str, str], line: str) -> list[str]:
    """Return what is offered for the last word of *line*, as bash asks for it."""
    asked = {"_EVENTBUS_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    ran = run(env=env | asked)
    assert ran.stderr == ""
    return [value for _, _, value in (found.partition(",") for found in ran.stdout.split())]


#: What is typed → the names that are offered.
NAMES = [
    ("eventbus group delete ", ["sink", "export:file-x", "worker:notify"]),
    ("eventbus group delete exp", ["export:file-x"]),
    ("eventbus dead list --group s", ["sink"]),
    ("eventbus get events -n ", ["default", "shop", "shop-b"]),
    ("eventbus get leases --namespace sh", ["shop", "shop-b"]),
    ("eventbus -n sh", ["shop", "shop-b"]),
    ("eventbus help gr", ["group"]),
    ("eventbus help get ev", ["events"]),
    ("eventbus help get events ", []),
    ("eventbus describe ", ["job/web", "pod/db-0", "pod/web-0"]),
    ("eventbus describe pod/w", ["pod/web-0"]),
    ("eventbus describe po/w", ["po/web-0"]),
    ("eventbus describe pods w", ["web-0"]),
    ("eventbus describe -n shop pod ", ["cart-0"]),
    ("eventbus events --for Pod/", ["Pod/db-0", "Pod/web-0"]),
    ("eventbus record j", ["job/web"]),
    ("eventbus silence expire 16c", [SILENCED]),
    ("eventbus silence expire 17c", []),
]


def test_names_come_from_the_bus(env: dict[str, str]) -> None:
    for line, names in NAMES:
        assert offered(env, line) == names, line


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("eventbus st", ["status"]),
        (
            "eventbus get ",
            [
                "acknowledgements",
                "all",
                "configmaps",
                "events",
                "expected",
                "leases",
                "nodes",
                "pods",
                "secrets",
                "silences",
                "suppressed",
            ],
        ),
        ("eventbus worker ", ["agent", "api", "export", "import", "lifecycle", "log", "metrics", "notify", "sink"]),
        ("eventbus status --w", ["--watch"]),
        ("eventbus get events -o j", ["json", "jsonpath="]),
        ("eventbus status -o ", ["wide", "json"]),
        ("eventbus options set burs", ["burst="]),
        ("eventbus get events --types ", ["Normal", "Warning"]),
        ("eventbus events --types normal,w", ["normal,Warning"]),
        ("eventbus completion ", ["bash", "zsh", "fish"]),
        ("eventbus acl --role p", ["producer"]),
        ("eventbus group delete ", []),
        ("eventbus get events -n ", []),
        ("eventbus describe statef", ["statefulset/"]),
    ],
)
def test_words_are_known_without_the_bus(away: dict[str, str], line: str, names: list[str]) -> None:
    assert offered(away, line) == names


def test_files_follow_exec(away: dict[str, str]) -> None:
    ran = run(
        env=away | {"_EVENTBUS_COMPLETE": "bash_complete", "COMP_WORDS": "eventbus exec -- cat /e", "COMP_CWORD": "4"}
    )
    assert ran.stdout == "file,/e\n"


def test_nobody_starts_a_server_by_pressing_tab(away: dict[str, str], short_path: Path) -> None:
    embedded = away | {"EVENTBUS_REDIS_URL": "", "EVENTBUS_STATE_DIR": str(short_path / "state")}
    assert offered(embedded, "eventbus group delete ") == []
    assert list(short_path.iterdir()) == []


def test_a_bus_that_never_answers_is_given_up(away: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        assert offered(away | {"EVENTBUS_REDIS_URL": url}, "eventbus group delete ") == []
    asking = "import time; from eventbus.cli.bus_names import ask_bus; print(ask_bus(lambda bus: time.sleep(600)))"
    ran = subprocess.run([sys.executable, "-c", asking], env=away, capture_output=True, text=True, timeout=60)
    assert ran.stdout == "[]\n"


# -- the scripts -------------------------------------------------------------------------------------------------------


@pytest.fixture
def command_on_path(tmp_path: Path) -> dict[str, str]:
    """Make `eventbus` a command of a shell; return the environment for it."""
    command = tmp_path / "eventbus"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m eventbus "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    return {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(Path(__file__).parents[2])}


#: What is typed → what it is after Tab.
TYPED = [
    ("eventbus group delete exp\t", "eventbus group delete export:file-x "),
    ("eventbus options set burs\t", "eventbus options set burst="),
    ("eventbus group delete export:\t", "eventbus group delete export:file-x "),
    ("eventbus group delete export:fi\t", "eventbus group delete export:file-x "),
    ("eventbus group delete export:fi --y\t", "eventbus group delete export:fi --yes "),
    ("eventbus dead list --cause export: --group s\t", "eventbus dead list --cause export: --group sink "),
    ("eventbus record --message a:b --reason :: job/\t", "eventbus record --message a:b --reason :: job/web "),
]


@pytest.mark.parametrize(("keys", "line"), one([pytest.param(*each) for each in TYPED]))
def test_tab_in_a_bash_completes_words_also_with_a_colon(
    env: dict[str, str], command_on_path: dict[str, str], keys: str, line: str
) -> None:
    shell = ["bash", "--noprofile", "--norc", "-i"]
    with Terminal(command=shell, env=env | command_on_path | {"PS1": "> ", "HISTFILE": ""}) as bash:
        bash.press('eval "$(eventbus completion bash)"; echo do"ne"\n')
        bash.wait_for("done")
        bash.press(keys)
        bash.wait_for(line)
        bash.press("|\n")  # whatever else Tab wrote stands before it
        bash.wait_for(f"> {line}|")


@pytest.mark.parametrize(("shell", "line"), [("zsh", "#compdef eventbus"), ("fish", "complete --no-files --command")])
def test_other_shells_have_a_script_too(away: dict[str, str], shell: str, line: str) -> None:
    ran = run("completion", shell, env=away)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert line in ran.stdout
    assert "_EVENTBUS_COMPLETE" in ran.stdout
