"""compose.yaml and the Procfile start what exists: every command of ours resolves, every setting is known."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

ROOT = Path(__file__).parents[3]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PROCFILE = dict(
    line.split(":", 1) for line in (ROOT / "Procfile").read_text(encoding="utf-8").splitlines() if line.strip()
)
OURS = {name: service for name, service in SERVICES.items() if "build" in service}


def words(command: str | list[str]) -> list[str]:
    return shlex.split(command) if isinstance(command, str) else command


def resolve(command: str | list[str]) -> click.Command:
    """The click command that *command* would run; its arguments are parsed, nothing is run."""
    from eventbus.workers.cli import main

    program, *rest = words(command)
    assert program == "eventbus"
    found: click.Command = main
    context = click.Context(main, info_name=program)
    while isinstance(found, click.Group):
        assert rest, f"{program} stops at a group"
        name = rest.pop(0)
        inner = found.get_command(context, name)
        assert inner is not None, f"no command {name!r} in {context.command_path!r}"
        found, context = inner, click.Context(inner, info_name=name, parent=context)
    found.make_context(context.info_name, rest, parent=context.parent).close()
    return found


@pytest.mark.parametrize("name", OURS)
def test_the_command_of_a_service_exists(name: str) -> None:
    assert resolve(OURS[name]["command"]).name == name


@pytest.mark.parametrize("name", PROCFILE)
def test_the_command_of_a_procfile_line_exists(name: str) -> None:
    assert resolve(PROCFILE[name]).name == name


@pytest.mark.parametrize("name", OURS)
def test_the_settings_of_a_service_are_known(name: str) -> None:
    from eventbus.settings import Settings

    known = {f"EVENTBUS_{field.upper()}" for field in Settings.__struct_fields__}
    environment: dict[str, str] = OURS[name]["environment"]
    assert set(environment) <= known
    settings = Settings.from_environ(environment)
    assert settings.redis_url.startswith("redis://redis:")


def test_both_files_start_the_same_workers() -> None:
    assert {name: words(line) for name, line in PROCFILE.items()} == {
        name: words(service["command"])[:3] for name, service in OURS.items()
    }


@pytest.mark.parametrize("name", OURS)
def test_a_service_serves_the_port_that_the_health_check_of_the_image_asks(name: str) -> None:
    port = words(OURS[name]["command"])[-2:]
    assert port[0] == "--metrics-port"
    assert f"http://127.0.0.1:{port[1]}/livez" in DOCKERFILE


def test_the_server_keeps_what_it_acknowledged_and_evicts_nothing() -> None:
    command = " ".join(words(SERVICES["redis"]["command"]))
    assert "--appendonly yes" in command
    assert "--maxmemory-policy noeviction" in command


@pytest.mark.parametrize("name", OURS)
def test_a_worker_is_given_longer_to_stop_than_it_takes_to_drain(name: str) -> None:
    from eventbus.settings import Settings

    assert int(OURS[name]["stop_grace_period"].removesuffix("s")) > Settings().drain_s
