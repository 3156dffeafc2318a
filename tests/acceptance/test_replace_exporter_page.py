"""The example of docs/import.md that replaces kubernetes-event-exporter, run as the page shows it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from eventbus import Settings
from eventbus.broker.bus import Bus, open_bus
from eventbus.model.kinds import EVENT
from eventbus.store.object_store import ObjectStore
from tests.acceptance.programs import Program, environment, run
from tests.builders import make_event, make_reference
from tests.support.api_in_process import serving
from tests.support.kubeconfig import write_kubeconfig
from tests.support.strict_stores import StrictStore, elasticsearch
from tests.support.webhook_server import Endpoint, receiving
from tests.waiting import eventually

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "import.md").read_text().partition("## Replace kube")[2]
EXPORTER, CONVERSION, WORKERS = re.findall(r"```(?:yaml|sh)\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def cluster(embedded_url: str, prefix: str) -> Bus:
    return open_bus(embedded_url, Settings(prefix=f"{prefix}c"))


@pytest.fixture
def chat() -> Endpoint:
    return Endpoint()


@pytest.fixture
def search() -> StrictStore:
    return elasticsearch(authorization="")


@pytest.fixture
def here(cluster: Bus, chat: Endpoint, search: StrictStore, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Yield the texts of the page that are other ones here."""
    with serving(cluster) as url, receiving(chat) as chat_port, receiving(search.service) as search_port:
        yield {
            "https://chat.example.com/hook": f"http://127.0.0.1:{chat_port}/hook",
            "https://search.example.com": f"http://127.0.0.1:{search_port}",
            "/var/log/events.jsonl": str(tmp_path / "events.jsonl"),
            "prod.yaml": str(write_kubeconfig(tmp_path / "prod.yaml", url)),
            "rules.yaml": str(tmp_path / "rules.yaml"),
            "exporter.yaml": str(tmp_path / "exporter.yaml"),
        }


def adapted(text: str, here: dict[str, str]) -> str:
    return re.sub("|".join(map(re.escape, here)), lambda found: here[found[0]], text)


def test_an_import_rules_and_two_sinks_do_the_work_of_the_exporter(
    embedded_url: str,
    prefix: str,
    cluster: Bus,
    chat: Endpoint,
    search: StrictStore,
    here: dict[str, str],
    tmp_path: Path,
) -> None:
    env = environment(embedded_url, prefix, webhook_allow_hosts="127.0.0.1")
    (tmp_path / "exporter.yaml").write_text(adapted(EXPORTER, here))
    converted = run("rules", "import", here["exporter.yaml"], env=env)
    assert converted.returncode == 1  # two receivers are exports
    shown = [line for line in CONVERSION.splitlines() if not line.startswith("$")]
    assert converted.stderr.splitlines() == [adapted(line, here) for line in shown]
    (tmp_path / "rules.yaml").write_text(converted.stdout)
    (tmp_path / "rules.yaml").chmod(0o600)
    commands = [shlex.split(line) for line in adapted(WORKERS, here).splitlines() if line.startswith("eventbus ")]
    with ObjectStore.of(cluster) as store, ExitStack() as stack:
        events = store.objects(EVENT)
        started, failed = (
            make_event(
                involved_object=make_reference(name=name), type=type_, reason=reason, first_timestamp=datetime.now(UTC)
            )
            for name, type_, reason in (("web-0", "Normal", "Started"), ("web-1", "Warning", "BackOff"))
        )
        events.create(started)
        failure = events.create(failed)
        for _, *words in commands:
            stack.enter_context(Program(*words, env=env, folder=tmp_path))
        eventually(lambda: exported(tmp_path) == {("Started", 1), ("BackOff", 1)}, despite=FileNotFoundError)
        assert not chat.deliveries
        events.update(replace(failure, count=2))
        eventually(lambda: chat.deliveries)
        eventually(lambda: ("BackOff", 2) in exported(tmp_path))
        expected = {started.metadata.name: 1, failed.metadata.name: 2}
        eventually(lambda: search.counts.items() >= expected.items())
    [alert] = json.loads(chat.deliveries[0].body)["alerts"]
    assert (alert["labels"]["reason"], alert["labels"]["name"]) == ("BackOff", "web-1")


def exported(folder: Path) -> set[tuple[str, int]]:
    """Return reason and count of each line about a pod."""
    lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    events = [line.get("event", line) for line in lines]
    return {(event["reason"], event["count"]) for event in events if event["involvedObject"]["kind"] == "Pod"}
