"""Data of earlier releases, as `make freeze` froze them: this build reads them, and continues with them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from eventbus.broker.connection.connect import make_client
from eventbus.broker.embedded.server import EmbeddedServer
from tests import freeze
from tests.acceptance.programs import Program, environment, run
from tests.functions.servers import binaries
from tests.waiting import eventually

#: What every build must have frozen: a key of each of these kinds.
KINDS_OF_KEYS = (
    "bus",
    "incoming",
    "dead",
    "meta",
    "object",
    "index",
    "changes",
    "notify",
    "export",
    "producer",
    "builds",
)


@pytest.fixture
def frozen(request: pytest.FixtureRequest, short_path: Path) -> tuple[dict[str, Any], Path]:
    """What was frozen, and its spool. Of this build: frozen now, on Redis 7.0 if there is one, else on ours."""
    folder: Path = request.param
    if folder.name == "now":
        folder = short_path / "now"
        server = EmbeddedServer(short_path / "freezing", binary=binaries().get("redis on PATH"))
        server.start()
        try:
            freeze.freeze(folder, server)
        finally:
            server.stop()
    shutil.copytree(folder / "spool", short_path / "spool")
    for path in (short_path / "spool", *(short_path / "spool").rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)  # git keeps no modes
    return json.loads((folder / "frozen.json").read_text("utf-8")), short_path / "spool"


@pytest.mark.parametrize(
    "frozen", [*sorted(freeze.FORMATS.glob("*")), Path("now")], indirect=True, ids=lambda p: p.name
)
def test_frozen_data_are_read_and_processed_to_the_end(
    frozen: tuple[dict[str, Any], Path], short_path: Path, tmp_path: Path
) -> None:
    data, spool = frozen
    for kind in KINDS_OF_KEYS:
        assert any(f":{kind}" in key for key in data["keys"]), f"no key of {kind}"
    server = EmbeddedServer(short_path / "thawed")
    url = server.start()
    env = environment(url, freeze.PREFIX)
    try:
        with make_client(url) as client:
            freeze.thaw(client, data["keys"])
        assert freeze.events(url) == data["events"]
        assert freeze.objects(env) == data["objects"]
        dead = json.loads(run("dead", "list", "-o", "json", env=env).stdout)
        assert {letter["group"] for letter in dead} == {"log", "sink"}
        with Program("worker", "sink", env=env, folder=tmp_path) as worker:
            sent = run("spool", "send", "--dir", str(spool), env=env)
            assert sent.returncode == 0, sent.stderr
            eventually(lambda: freeze.counted(url).total() >= sum(data["counts"].values()))
            assert freeze.counted(url) == data["counts"]
            assert worker.stop() == 0
        assert run("doctor", env=env).returncode != 2
    finally:
        server.stop()
