"""A bus of several partitions over HTTP: versions are one growing number all the same, the same from every worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from eventbus.api.versions.wire_versions import WireVersions
from tests.support.api_replay import EVENTS
from tests.support.api_worker import ApiWorker, api_worker


@pytest.fixture
def worker(embedded_url: str, prefix: str, tmp_path: Path) -> Iterator[ApiWorker]:
    with api_worker(embedded_url, prefix, tmp_path, partitions="3") as started:
        yield started


@pytest.fixture
def other(worker: ApiWorker, embedded_url: str, prefix: str, tmp_path: Path) -> Iterator[ApiWorker]:
    with api_worker(embedded_url, prefix, tmp_path) as started:
        yield started


def event(name: str, **fields: Any) -> dict[str, Any]:
    about = {"kind": "Pod", "namespace": "default", "name": "web-0"}
    return {"metadata": {"name": name}, "involvedObject": about} | fields


def version(found: Any) -> int:
    return int(found["metadata"]["resourceVersion"])


def numbers(worker: ApiWorker) -> dict[str, int]:
    return {item["metadata"]["name"]: version(item) for item in worker.call("GET", EVENTS).json["items"]}


def test_a_watch_of_several_partitions_goes_on_from_any_frame(worker: ApiWorker) -> None:
    names = [f"e{number}" for number in range(12)]
    told: list[str] = []
    versions = [version(worker.call("GET", EVENTS).json)]
    for start in (0, 4, 8):
        with worker.watch(f"{EVENTS}?watch=1&resourceVersion={versions[-1]}") as frames:
            for name in names[start : start + 4]:
                worker.call("POST", EVENTS, event(name))
                found = next(frames)["object"]
                told.append(found["metadata"]["name"])
                versions.append(version(found))
    assert told == names
    assert versions == sorted(set(versions))
    assert versions[-1] < 2**53


def test_lists_items_frames_and_replies_have_the_same_numbers_in_all_workers(
    worker: ApiWorker, other: ApiWorker
) -> None:
    start = version(worker.call("GET", EVENTS).json)
    written: dict[str, int] = {}
    for number in range(20):
        name = f"e{number}"
        written[name] = version((worker, other)[number % 2].call("POST", EVENTS, event(name)).json)
    for one in (worker, other):
        assert numbers(one) == written
        assert version(one.call("GET", EVENTS).json) == max(written.values())
        assert version(one.call("GET", f"{EVENTS}/e7").json) == written["e7"]
        with one.watch(f"{EVENTS}?watch=1&resourceVersion={start}") as frames:
            found = [next(frames)["object"] for _ in written]
        assert {item["metadata"]["name"]: version(item) for item in found} == written
        assert [version(item) for item in found] == sorted(written.values())
    assert sorted(written.values()) == list(range(start + 1, start + 21))


def test_who_is_cut_off_by_a_killed_worker_goes_on_with_another_and_misses_nothing(
    worker: ApiWorker, other: ApiWorker
) -> None:
    with worker.watch(f"{EVENTS}?watch=1") as frames:
        for number in range(5):
            worker.call("POST", EVENTS, event(f"a{number}"))
        last = [version(next(frames)["object"]) for _ in range(3)][-1]
        worker.program.kill()
    for number in range(5):
        other.call("POST", EVENTS, event(f"b{number}"))
    with other.watch(f"{EVENTS}?watch=1&resourceVersion={last}") as frames:
        told = [next(frames)["object"]["metadata"]["name"] for _ in range(7)]
    assert told == ["a3", "a4", "b0", "b1", "b2", "b3", "b4"]


def test_who_is_cut_off_among_what_was_there_goes_on_from_there(worker: ApiWorker) -> None:
    worker.call("GET", EVENTS)
    names = {f"e{number}" for number in range(6)}
    for name in sorted(names):
        worker.call("POST", EVENTS, event(name))
    with worker.watch(f"{EVENTS}?watch=1") as frames:
        first = [next(frames)["object"] for _ in range(2)]
    with worker.watch(f"{EVENTS}?watch=1&resourceVersion={version(first[-1])}") as frames:
        rest = [next(frames)["object"] for _ in range(4)]
    assert {found["metadata"]["name"] for found in [*first, *rest]} == names


def test_what_a_frame_told_can_be_put_until_it_changes(worker: ApiWorker) -> None:
    with worker.watch(f"{EVENTS}?watch=1") as frames:
        worker.call("POST", EVENTS, event("a"))
        seen = next(frames)["object"]
    path = f"{EVENTS}/a"
    assert worker.call("PUT", path, seen | {"count": 2}).status == 200
    assert worker.call("PUT", path, seen | {"count": 3}).status == 409
    unknown = seen | {"metadata": seen["metadata"] | {"resourceVersion": "17"}}
    assert worker.call("PUT", path, unknown | {"count": 3}).status == 409
    assert worker.call("PUT", path, worker.call("GET", path).json | {"count": 3}).status == 200
    told = version(worker.call("GET", path).json)
    reply = worker.call("DELETE", path, {"preconditions": {"resourceVersion": str(told)}})
    assert reply.status == 200


def test_nobody_goes_on_from_a_version_that_nobody_gave(worker: ApiWorker) -> None:
    now = version(worker.call("GET", EVENTS).json)
    for unknown, code in ((now + 1, 504), (10 * now, 504), (17, 410)):
        assert worker.call("GET", f"{EVENTS}?watch=1&resourceVersion={unknown}").status == 410
        assert worker.call("GET", f"{EVENTS}?resourceVersion={unknown}").status == code


def test_lost_state_is_told_by_410_and_numbers_only_jump_up(
    worker: ApiWorker, other: ApiWorker, embedded_url: str, prefix: str
) -> None:
    before = version(worker.call("POST", EVENTS, event("a")).json)
    client = redis.Redis.from_url(embedded_url)
    with worker.watch(f"{EVENTS}?watch=1&resourceVersion={before}") as frames, client:
        client.delete(f"{prefix}:{{0}}:checkpoints")
        after = version(other.call("POST", EVENTS, event("b")).json)
        assert after > before
        worker.call("POST", EVENTS, event("c"))
        told = list(frames)
    assert told[-1]["object"]["code"] == 410
    assert worker.call("GET", f"{EVENTS}?watch=1&resourceVersion={before}").status == 410
    assert numbers(worker) == numbers(other)
    assert min(numbers(other).values()) > before


def test_pages_are_of_one_list(worker: ApiWorker) -> None:
    for number in range(7):
        worker.call("POST", EVENTS, event(f"e{number}"))
    path, names, versions = f"{EVENTS}?limit=3", [], set()
    while path:
        page = worker.call("GET", path).json
        names += [item["metadata"]["name"] for item in page["items"]]
        versions.add(version(page))
        path = f"{EVENTS}?limit=3&continue={page['metadata']['continue']}" if "continue" in page["metadata"] else ""
    assert sorted(names) == [f"e{number}" for number in range(7)]
    assert len(versions) == 1


def test_a_base_makes_numbers_small_and_never_negative() -> None:
    versions = WireVersions(base=1000)
    assert (versions.own("1500"), versions.to_store("500")) == ("500", "1500")
    assert (versions.own("1"), versions.own("900"), versions.to_store("0")) == ("1", "1", "0")


@pytest.mark.parametrize("partitions", ["1", "2"])
def test_a_version_that_is_ahead_is_named_as_the_client_did(
    embedded_url: str, prefix: str, tmp_path: Path, partitions: str
) -> None:
    with api_worker(embedded_url, prefix, tmp_path, partitions=partitions) as worker:
        newest = worker.call("POST", EVENTS, event("e1")).json["metadata"]["resourceVersion"]
        ahead = str(int(newest) + 1_000)
        listed = worker.call("GET", f"{EVENTS}?resourceVersion={ahead}")
        assert listed.status == 504
        assert listed.json["message"] == f"Timeout: Too large resource version: {ahead}, current: {newest}"
        watched = worker.call("GET", f"{EVENTS}?watch=1&resourceVersion={ahead}")
        assert watched.status == 410
        assert watched.json["message"] == f"Too large resource version: {ahead}, current: {newest}"
