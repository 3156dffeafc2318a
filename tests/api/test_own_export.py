"""An export of a bus into its own API is refused; another bus's is taken."""

from __future__ import annotations

import json
from pathlib import Path

from eventbus.broker.bus import open_bus
from eventbus.settings import Settings
from tests.acceptance.programs import Program, environment
from tests.support.api_replay import EVENTS
from tests.support.api_worker import ApiWorker, api_worker
from tests.support.kubeconfig import write_kubeconfig
from tests.waiting import eventually

ABOUT = {"kind": "Pod", "namespace": "default", "name": "web-0"}


def count(worker: ApiWorker) -> int:
    return len(worker.call("GET", EVENTS).json["items"])


def test_an_export_that_comes_back_is_refused_and_status_says_why(
    embedded_url: str, prefix: str, tmp_path: Path
) -> None:
    with api_worker(embedded_url, prefix, tmp_path) as worker:
        config = write_kubeconfig(tmp_path / "config", worker.url)
        env = environment(embedded_url, prefix)
        worker.call("POST", EVENTS, {"metadata": {"name": "a"}, "involvedObject": ABOUT})
        with Program("worker", "export", "--to", f"kubernetes:{config}", env=env, folder=tmp_path) as export:
            eventually(lambda: "writes into the bus that it reads" in export.err)
            assert count(worker) == 1


def test_who_names_another_bus_is_taken(embedded_url: str, prefix: str, tmp_path: Path) -> None:
    with api_worker(embedded_url, prefix, tmp_path) as worker:
        ours = open_bus(embedded_url, Settings(prefix=prefix)).id
        for number, bus in enumerate(("0123456789abcdef", ours)):
            body = {"metadata": {"name": f"e{number}"}, "involvedObject": ABOUT, "reason": "Done"}
            found = worker.call("POST", f"{EVENTS}?fieldManager=eventbus-{bus}", body)
            sent = worker.call("POST", "/eventbus/v1/record", [body], Eventbus_Bus=bus, Content_Type="application/json")
            assert (found.status, sent.status) == ((403, 403) if bus == ours else (201, 200))
        assert ours in json.loads(found.data)["message"]


def test_the_audit_tells_how_many_events_were_recorded(embedded_url: str, prefix: str, tmp_path: Path) -> None:
    with api_worker(embedded_url, prefix, tmp_path, "--audit") as worker:
        events = [{"involvedObject": ABOUT, "reason": f"R{number}"} for number in range(60)]
        assert worker.call("POST", "/eventbus/v1/record", events).json["accepted"] == 60
        eventually(lambda: "POST /eventbus/v1/record -> 200" in worker.program.err)
        assert "accepted 60 of 60 events" in worker.program.err
