"""What is different between two words of a source."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from eventbus.agent.config.pod_config import PodConfig
from eventbus.agent.pods.updates import Op, PodUpdate, Source
from eventbus.model.objects.pod import PodStatus
from tests.unit.agent.pods.pods import a_pod


def ops(updates: list[PodUpdate]) -> list[tuple[Op, list[str]]]:
    found = [(update.op, [pod.metadata.name for pod in update.pods]) for update in updates]
    updates.clear()
    return found


def test_only_what_is_different_is_told() -> None:
    updates: list[PodUpdate] = []
    config = PodConfig(updates.append)
    a, b = a_pod("a"), a_pod("b")
    config.set(Source.FILE, [a, b])
    assert ops(updates) == [(Op.ADD, ["a", "b"])]
    config.set(Source.FILE, [a, b])
    assert ops(updates) == []
    relabelled = msgspec.structs.replace(a, metadata=msgspec.structs.replace(a.metadata, labels={"x": "y"}))
    config.set(Source.FILE, [relabelled])
    assert ops(updates) == [(Op.REMOVE, ["b"]), (Op.UPDATE, ["a"])]


def test_a_deletion_and_a_status_are_words_of_their_own() -> None:
    updates: list[PodUpdate] = []
    config = PodConfig(updates.append)
    a, b = a_pod("a"), a_pod("b")
    config.set(Source.BUS, [a, b])
    updates.clear()
    deleted = msgspec.structs.replace(
        a, metadata=msgspec.structs.replace(a.metadata, deletion_timestamp=datetime(2024, 1, 1, tzinfo=UTC))
    )
    config.set(Source.BUS, [deleted, msgspec.structs.replace(b, status=PodStatus(phase="Running"))])
    assert ops(updates) == [(Op.DELETE, ["a"]), (Op.RECONCILE, ["b"])]


def test_sources_do_not_know_of_each_other_and_one_without_pods_has_has_listed() -> None:
    updates: list[PodUpdate] = []
    config = PodConfig(updates.append)
    config.expect(Source.FILE)
    config.expect(Source.BUS)
    config.set(Source.FILE, [a_pod("a")])
    ready = config.all_ready
    assert not ready
    updates.clear()
    config.set(Source.BUS, [])
    assert ops(updates) == [(Op.ADD, [])]
    ready = config.all_ready
    assert ready


def test_a_pod_of_the_bus_cannot_take_the_uid_of_a_pod_of_a_file() -> None:
    updates: list[PodUpdate] = []
    config = PodConfig(updates.append)
    config.set(Source.FILE, [a_pod("web", uid="u1")])
    updates.clear()
    config.set(Source.BUS, [a_pod("forged", uid="u1"), a_pod("b")])
    assert ops(updates) == [(Op.ADD, ["b"])]
    config.set(Source.BUS, [a_pod("b")])
    assert ops(updates) == []


def test_a_pod_of_the_bus_with_the_uid_of_a_later_pod_of_a_file_is_removed_first() -> None:
    updates: list[PodUpdate] = []
    config = PodConfig(updates.append)
    config.set(Source.BUS, [a_pod("forged", uid="u1")])
    updates.clear()
    config.set(Source.FILE, [a_pod("web", uid="u1")])
    assert [(update.op, update.source) for update in updates] == [(Op.REMOVE, Source.BUS), (Op.ADD, Source.FILE)]
    assert ops(updates) == [(Op.REMOVE, ["forged"]), (Op.ADD, ["web"])]
