"""What a short process imports: a person waits for it at every command and every Tab."""

from __future__ import annotations

import subprocess
import sys

import pytest

from eventbus.__main__ import LONG
from eventbus.cli.main import COMMANDS
from eventbus.workers.cli import WORKER_COMMANDS
from tests.acceptance.programs import environment
from tests.thin import thin

MODULES = sorted({command.target.partition(":")[0] for command in COMMANDS.values()})
#: What a person waits for most often.
FEW = (".get_events", ".describe", ".events", ".record", ".status")
#: What only a command that is run may need.
OF_A_RUN = {"redis", "asyncio", "yaml", "eventbus.broker.bus", "eventbus.store.object_store"}


@pytest.fixture
def env(embedded_url: str, prefix: str) -> dict[str, str]:
    return environment(embedded_url, prefix) | {"EVENTBUS_COMPLETION_TIMEOUT_S": "100"}


def test_help_imports_neither_redis_nor_a_command(env: dict[str, str]) -> None:
    loaded = loaded_by("import eventbus.workers.cli", env)
    assert "eventbus.workers.cli" in loaded
    assert not {"redis", "eventbus.cli.commands.get_events", "eventbus.workers.worker", "hiredis"} & loaded


@pytest.mark.parametrize("module", thin(MODULES, lambda module: module.endswith(FEW)))
def test_a_command_imports_only_what_its_help_and_options_need_until_it_is_run(
    module: str, env: dict[str, str]
) -> None:
    loaded = loaded_by(f"import {module}", env)
    assert module in loaded
    assert not OF_A_RUN & loaded


def test_completing_an_option_imports_no_redis(env: dict[str, str]) -> None:
    loaded = loaded_by(RUN, env | completing("eventbus get events --", 3))
    assert "eventbus.cli.commands.get_events" in loaded
    assert not OF_A_RUN & loaded


def test_completing_an_option_of_up_imports_nothing_of_what_up_runs(env: dict[str, str]) -> None:
    loaded = loaded_by(RUN, env | completing("eventbus up --", 2))
    assert "eventbus.workers.up" in loaded
    assert not {*OF_A_RUN, "eventbus.agent.pods.procfile_runner", "eventbus.workers.worker"} & loaded


def test_completing_a_name_imports_no_store_and_no_printer(env: dict[str, str]) -> None:
    loaded = loaded_by(RUN, env | completing("eventbus get events -n ", 4))
    assert "redis.client" in loaded
    assert (
        not {"eventbus.broker.bus", "eventbus.store.object_store", "eventbus.model.kinds", "eventbus.printers.table"}
        & loaded
    )


def test_completing_a_name_imports_neither_asyncio_nor_ssl(env: dict[str, str]) -> None:
    loaded = loaded_by(RUN, env | completing("eventbus get events -n ", 4))
    assert "redis.client" in loaded
    assert not {"asyncio", "asyncio.events", "ssl"} & loaded


def test_what_stands_in_for_asyncio_and_ssl_is_the_whole_module_at_the_first_look(env: dict[str, str]) -> None:
    said = (
        "import asyncio, ssl, redis.asyncio, redis.cluster; "
        "print(asyncio.run(asyncio.sleep(0, 7)), asyncio.Lock, ssl.SSLError, redis.cluster.RedisCluster.__name__)"
    )
    code = f"from eventbus.cli.lean import run_short; run_short(lambda: exec({said!r}, {{'__name__': 'ours'}}))"
    ended = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (
        0,
        "7 <class 'asyncio.locks.Lock'> <class 'ssl.SSLError'> RedisCluster\n",
    ), ended.stderr


@pytest.mark.parametrize(
    "words", [["group", "list"], ["get", "events"], ["record", "Pod/a", "--reason", "Seen", "--message", "as it is"]]
)
def test_a_command_that_talks_to_redis_leaves_out_what_redis_imports_for_others(
    words: list[str], env: dict[str, str]
) -> None:
    loaded = loaded_by(f"import sys; sys.argv[1:] = {words}; {RUN}", env)
    assert {"redis.client", "eventbus.broker.bus"} <= loaded
    assert not {"redis.asyncio.client", "importlib.metadata._meta", "email.message", "tempfile"} & loaded
    assert not {"asyncio", "ssl", "redis.cluster", "redis.keyspace_notifications", "concurrent.futures"} & loaded
    assert not {"eventbus.broker.connection.cluster_client", "difflib"} & loaded


def test_what_serves_others_has_the_modules_themselves() -> None:
    assert {words.partition(" ")[0] for words in WORKER_COMMANDS} <= LONG <= {*COMMANDS, *WORKER_COMMANDS, "worker"}


@pytest.mark.parametrize(
    ("before", "ends"),
    [
        ("", "at once"),
        ("threading.Thread(target=threading.Event().wait, daemon=True).start(); ", "in order"),
        ("sys.setprofile(lambda *_: None); ", "in order"),
        ("import eventbus.record.broadcaster; ", "in order"),
    ],
)
def test_a_short_command_ends_at_once_only_where_nothing_is_left_to_do(
    before: str, ends: str, env: dict[str, str]
) -> None:
    code = f"import atexit, sys, threading; {before}atexit.register(print, 'in order'); sys.argv[1:] = ['--help']; "
    ended = subprocess.run([sys.executable, "-c", code + RUN], env=env, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.endswith("in order\n") == (ends == "in order")


def test_what_cannot_be_written_at_the_end_is_said(env: dict[str, str]) -> None:
    code = (
        "import sys; from eventbus.cli.lean import run_short; run_short(lambda: (sys.stdout.write('x'), sys.exit(0)))"
    )
    with open("/dev/full", "w") as full:
        env |= {"PYTHONUNBUFFERED": ""}
        ended = subprocess.run([sys.executable, "-c", code], env=env, stdout=full, stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 120
    assert "No space left on device" in ended.stderr


RUN = "from eventbus.__main__ import main; main()"


def completing(line: str, word: int) -> dict[str, str]:
    return {"COMP_WORDS": line, "COMP_CWORD": str(word), "_EVENTBUS_COMPLETE": "bash_complete"}


def loaded_by(code: str, env: dict[str, str]) -> set[str]:
    """Run *code* in an interpreter of its own, and return the modules that it has imported by its end."""
    ended = subprocess.run([sys.executable, "-v", "-c", code], env=env, capture_output=True, text=True)
    return {line.split("'")[1] for line in ended.stderr.splitlines() if line.startswith("import '")}
