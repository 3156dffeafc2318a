"""Runs kubectl commands that were recorded against a real API server, and compares what it prints."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from tests.support.api_worker import ApiWorker
from tests.waiting import PATIENCE_S

_SCRUBBED = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<uid>"),
    (re.compile(r"\b[0-9a-f]{16}:1\b"), "<uid>"),  # ours: see docs/api-departures.md
    (re.compile(r'(resourceVersion"?: )"?\d+"?'), r"\1<rv>"),
    (re.compile(r'(creationTimestamp"?: )"?[0-9TZ:-]+"?'), r"\1<time>"),
    (re.compile(r"(Resource Version:\s+)\d+"), r"\1<rv>"),
    (re.compile(r"(Creation ?Timestamp:\s+).*"), r"\1<time>"),
    (re.compile(r"(Taints:\s+).*"), r"\1<taints>"),
    (re.compile(r"(?m)(^|[ (])((?:\d+[ydhms])+)(?=$|[ )])"), r"\1<age>"),
    (re.compile(r" {2,}"), "  "),
    (re.compile(r"(?m) +$"), ""),
)


class Kubectl:
    """kubectl against *worker*, with a home of its own: what it discovers it keeps for hours."""

    def __init__(self, program: str, worker: ApiWorker, folder: Path) -> None:
        self._program = program
        self._folder = folder
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "x", "cluster": {"server": worker.url}}],
            "users": [{"name": "x", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
            "current-context": "x",
        }
        (folder / "config").write_text(json.dumps(config))

    def run(self, *words: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._program, "--kubeconfig", str(self._folder / "config"), *words],
            capture_output=True,
            text=True,
            input=given,
            env={**os.environ, "HOME": str(self._folder), "TZ": "UTC"},
            timeout=PATIENCE_S,
        )


def make_fixture(worker: ApiWorker, recorded: dict[str, Any]) -> None:
    for one in recorded["fixture"]:
        answer = worker.call(one["method"], one["path"], one["body"], Content_Type="application/json")
        assert answer.status == 201, answer.data


def differences(kubectl: Kubectl, recorded: dict[str, Any]) -> dict[str, list[str]]:
    """By command what it did otherwise. The commands are run in their order, for they build on each other."""
    found: dict[str, list[str]] = {}
    for one in recorded["runs"]:
        ran = kubectl.run(*one["command"])
        got = {"exit": ran.returncode, "stdout": scrub(ran.stdout), "stderr": scrub(ran.stderr)}
        wanted = {"exit": one["exit"], "stdout": scrub(one["stdout"]), "stderr": scrub(one["stderr"])}
        if wrong := [f"{key}: {got[key]!r}, recorded {wanted[key]!r}" for key in got if got[key] != wanted[key]]:
            found[" ".join(one["command"])] = wrong
    return found


def scrub(text: str) -> str:
    for pattern, word in _SCRUBBED:
        text = pattern.sub(word, text)
    return text


__all__ = ["Kubectl", "differences", "make_fixture", "scrub"]
