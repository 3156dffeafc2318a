"""The imports of short processes: a person waits for them at every command and every Tab."""

from __future__ import annotations

import subprocess
import sys

import pytest

from eventbus.broker.bus import open_bus
from eventbus.cli.main import COMMANDS
from eventbus.settings import Settings
from tests.acceptance.both_ways import over_http
from tests.acceptance.programs import environment
from tests.support.api_in_process import serving

MODULES = sorted({command.target.partition(":")[0] for command in COMMANDS.values()})
#: Modules that only a running command may need.
OF_A_RUN = {"redis", "asyncio", "yaml", "eventbus.broker.bus", "eventbus.store.object_store"}
#: Modules of workers and agents, and of output that was not asked for.
OF_LONG_PROCESSES = {
    "aiohttp", "eventbus.agent.pods.pod_agent", "eventbus.api.server", "eventbus.workers.worker", "jsonpatch",
    "prometheus_client", "yaml",
}  # fmt: skip


@pytest.fixture
def env(embedded_url: str, prefix: str) -> dict[str, str]:
    return environment(embedded_url, prefix) | {"EVENTBUS_COMPLETION_TIMEOUT_S": "100"}


def test_commands_import_only_what_their_help_and_options_need_until_they_are_run(env: dict[str, str]) -> None:
    loaded = loaded_by(f"import {', '.join(MODULES)}", env)
    assert set(MODULES) <= loaded
    assert not OF_A_RUN & loaded


def test_completing_an_option_imports_no_redis(env: dict[str, str]) -> None:
    loaded = loaded_by(RUN, env | completing("eventbus get events --", 3))
    assert "eventbus.cli.commands.get_events" in loaded
    assert not OF_A_RUN & loaded


@pytest.mark.parametrize(
    ("words", "needed", "unneeded"),
    [
        ("get events", "eventbus.store.reader", {"eventbus.record.outbox", "eventbus.consume.consumer"}),
        ("exec -- true", "eventbus.record.outbox", {"eventbus.store.object_store", "eventbus.model.kinds"}),
    ],
)
def test_a_short_command_imports_only_what_it_uses(
    words: str, needed: str, unneeded: set[str], env: dict[str, str]
) -> None:
    loaded = loaded_by(f"import sys; sys.argv[1:] = {words.split()}; {RUN}", env)
    assert {needed, "redis.client"} <= loaded
    assert not (OF_LONG_PROCESSES | unneeded) & loaded


@pytest.mark.parametrize("words", ["get events", "exec -- true"])
def test_a_command_over_http_imports_no_redis(words: str, embedded_url: str, prefix: str) -> None:
    with serving(open_bus(embedded_url, Settings(prefix=prefix))) as url:
        loaded = loaded_by(f"import sys; sys.argv[1:] = {words.split()}; {RUN}", over_http(url))
    assert "eventbus.client.connection" in loaded
    assert not {"redis", "asyncio", *OF_LONG_PROCESSES} & loaded


RUN = "from eventbus.__main__ import main; main()"


def completing(line: str, word: int) -> dict[str, str]:
    return {"COMP_WORDS": line, "COMP_CWORD": str(word), "_EVENTBUS_COMPLETE": "bash_complete"}


def loaded_by(code: str, env: dict[str, str]) -> set[str]:
    """Run *code* in an interpreter of its own; return the modules that it and its children have imported by its end."""
    env = env | {"PYTHONVERBOSE": "1"}
    ended = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    return {line.split("'")[1] for line in ended.stderr.splitlines() if line.startswith("import '")}
