"""The import from a real kube-apiserver 1.20: pages, watches, bookmarks, 410 after a compaction, restarts, tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from eventbus import Settings
from eventbus.broker.bus import Bus, open_bus
from eventbus.errors import SinkUnreachable
from eventbus.export.sinks.kubernetes import load_config
from eventbus.imports import cluster as module
from eventbus.imports.cluster import Cluster
from eventbus.model.kinds import EVENT
from eventbus.store.object_store import ObjectStore
from tests.clients.tools import KUBE_APISERVER, ROOT
from tests.faults.scene import Scene
from tests.support.import_survival import imported, survive
from tests.support.importing import importing
from tests.support.kube_apiserver import USER, KubeApiserver, kube_as_source, running
from tests.waiting import eventually

RBAC = "/apis/rbac.authorization.k8s.io/v1"
#: The rights that docs/import.md names.
(ROLE,) = re.findall(r"```yaml\n(apiVersion: rbac.*?)```", (ROOT / "docs" / "import.md").read_text(), re.DOTALL)

pytestmark = pytest.mark.skipif(not KUBE_APISERVER.exists(), reason="make test-go compiles it")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[KubeApiserver]:
    home = tmp_path / "kube"
    home.mkdir()
    with running(KUBE_APISERVER.parent, home) as server:
        role = yaml.safe_load(ROLE)
        server.call("POST", f"{RBAC}/clusterroles", role)
        binding = {
            "metadata": {"name": "import"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": role["metadata"]["name"],
            },
            "subjects": [{"kind": "User", "name": USER, "apiGroup": "rbac.authorization.k8s.io"}],
        }
        server.call("POST", f"{RBAC}/clusterrolebindings", binding)
        yield server


@pytest.fixture
def bus(embedded_url: str, prefix: str) -> Bus:
    return open_bus(embedded_url, Settings(prefix=prefix))


@pytest.mark.timeout(900)
def test_each_event_and_repeat_is_stored_once_through_faults(server: KubeApiserver, short_path: Path) -> None:
    with Scene(short_path, hold=False) as scene:
        survived = survive(kube_as_source(server), scene, server.write_config, events=1_000, down_s=5)
    survived.assert_good()


def test_lists_have_pages_and_events_keep_their_fields(
    server: KubeApiserver, bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE", 10)
    source = kube_as_source(server)
    source.record(range(35))
    wanted = source.held()
    cluster = Cluster(load_config(str(server.write_config(tmp_path / "config")), ""))
    assert [len(page.events) for page in cluster.pages()] == [10, 10, 10, 5]
    cluster.close()
    body: dict[str, Any] = {
        "metadata": {"name": "series", "namespace": "default", "labels": {"a": "b"}},
        "regarding": {"kind": "Pod", "namespace": "default", "name": "web-0", "uid": "u1"},
        "eventTime": "2026-01-02T03:04:05.678901Z",
        "reportingController": "example.com/c",
        "reportingInstance": "c-0",
        "action": "Pulling",
        "reason": "Failed",
        "type": "Warning",
        "note": "no such image",
        "series": {"count": 4, "lastObservedTime": "2026-01-02T03:05:06.000007Z"},
    }
    made = server.call("POST", "/apis/events.k8s.io/v1/namespaces/default/events", body)
    with importing(bus, tmp_path / "config"):
        eventually(lambda: len(imported(bus)) == 36)
        body["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"]
        body["series"]["count"] = 5
        server.call("PUT", "/apis/events.k8s.io/v1/namespaces/default/events/series", body)
        eventually(lambda: imported(bus)["series"] == (made["metadata"]["uid"], 5))
    with ObjectStore.of(bus) as store:
        event = store.objects(EVENT).get("series", "default")
    assert (event.metadata.labels, event.action, event.message) == ({"a": "b"}, "Pulling", "no such image")
    assert (event.event_time and event.event_time.isoformat()) == "2026-01-02T03:04:05.678901+00:00"
    assert imported(bus) == wanted | {"series": (made["metadata"]["uid"], 5)}


def test_a_compaction_ends_in_a_comparison(server: KubeApiserver, bus: Bus, tmp_path: Path) -> None:
    source = kube_as_source(server)
    source.record(range(3))
    config = server.write_config(tmp_path / "config")
    with importing(bus, config):
        eventually(lambda: imported(bus) == source.held())
    source.record(range(1, 5))
    server.compact()
    source.record([5])
    with importing(bus, config, identity="two") as second:
        eventually(lambda: imported(bus) == source.held())
        assert second.loop_health()[0].counts["lists"] == 1


def test_a_restarted_server_is_followed_without_a_list(server: KubeApiserver, bus: Bus, tmp_path: Path) -> None:
    source = kube_as_source(server)
    source.record(range(3))
    with importing(bus, server.write_config(tmp_path / "config")) as importer:
        eventually(lambda: imported(bus) == source.held())
        server.stop()
        server.start()
        source.record(range(5))
        eventually(lambda: imported(bus) == source.held())
        assert importer.loop_health()[0].counts["lists"] == 1


@pytest.mark.parametrize(("token", "answer"), [("wrong", "401"), ("admin-token", "")])
def test_a_token_is_needed(server: KubeApiserver, tmp_path: Path, token: str, answer: str) -> None:
    cluster = Cluster(load_config(str(server.write_config(tmp_path / "config", token=token)), ""))
    try:
        if answer:
            with pytest.raises(SinkUnreachable, match=answer):
                list(cluster.pages())
        else:
            assert [page.events for page in cluster.pages()] == [[]]
    finally:
        cluster.close()
