"""Commands that kubectl's users type by habit work, or one line says what to type instead."""

from __future__ import annotations

import json

import pytest

from tests.acceptance.programs import environment, run

NOWHERE = environment("none", "eb")


def test_help_is_a_command() -> None:
    done = run("help", "get", "events", env=NOWHERE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: eventbus get events")


def test_version_is_a_command() -> None:
    assert run("version", env=NOWHERE).stdout.startswith("Client Version: v")
    assert "gitVersion" in json.loads(run("version", "-o=json", env=NOWHERE).stdout)["clientVersion"]


def test_api_resources_lists_what_the_store_holds() -> None:
    lines = run("api-resources", env=NOWHERE).stdout.splitlines()
    assert lines[0].split() == ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"]
    assert ["events", "ev", "v1", "true", "Event"] in [line.split() for line in lines]
    assert "nodes" in run("api-resources", "-o", "name", env=NOWHERE).stdout.splitlines()


@pytest.mark.parametrize("word", ["edit", "cordon", "patch"])
def test_a_command_of_kubectls_that_there_is_none_of_leads_on(word: str) -> None:
    done = run(word, "pod/web-0", env=NOWHERE)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        f"Error: There is no `eventbus {word}`. Use `kubectl {word}`, through `eventbus worker api`"
    )
