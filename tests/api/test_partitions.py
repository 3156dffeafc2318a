"""A bus of several partitions over HTTP: versions are one number all the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventbus.api.wire_versions import DIGITS, WireVersions
from eventbus.errors import Expired
from tests.support.api_replay import EVENTS
from tests.support.api_worker import ApiWorker, api_worker

pytestmark = pytest.mark.xdist_group("api partitions")


@pytest.fixture
def worker(embedded_url: str, prefix: str, tmp_path: Path) -> Iterator[ApiWorker]:
    with api_worker(embedded_url, prefix, tmp_path, partitions="3") as started:
        yield started


def event(name: str, **fields: Any) -> dict[str, Any]:
    about = {"kind": "Pod", "namespace": "default", "name": "web-0"}
    return {"metadata": {"name": name}, "involvedObject": about} | fields


def test_a_watch_of_several_partitions_goes_on_from_any_frame(worker: ApiWorker) -> None:
    names = [f"e{number}" for number in range(12)]
    version = worker.call("GET", EVENTS).json["metadata"]["resourceVersion"]
    told: list[str] = []
    versions = [int(version)]
    for start in (0, 4, 8):
        with worker.watch(f"{EVENTS}?watch=1&resourceVersion={versions[-1]}") as frames:
            for name in names[start : start + 4]:
                worker.call("POST", EVENTS, event(name))
                metadata = next(frames)["object"]["metadata"]
                told.append(metadata["name"])
                versions.append(int(metadata["resourceVersion"]))
    assert told == names
    assert versions == sorted(set(versions))


def test_what_a_frame_told_can_be_put_until_it_changes(worker: ApiWorker) -> None:
    with worker.watch(f"{EVENTS}?watch=1") as frames:
        worker.call("POST", EVENTS, event("a"))
        seen = next(frames)["object"]
    path = f"{EVENTS}/a"
    assert worker.call("PUT", path, seen | {"count": 2}).status == 200
    assert worker.call("PUT", path, seen | {"count": 3}).status == 409
    assert worker.call("PUT", path, worker.call("GET", path).json | {"count": 3}).status == 200


def test_joined_versions_are_read_as_they_were_written() -> None:
    versions = WireVersions(partitions=3)
    joined = versions.of_list("1763700000000000-7-1763700000000001")
    assert len(joined) == 3 * DIGITS
    assert versions.to_store(joined) == "1763700000000000-7-1763700000000001"
    with pytest.raises(Expired):
        versions.to_store("1763700000000000")


def test_a_base_makes_numbers_small_and_never_negative() -> None:
    versions = WireVersions(base=1000)
    assert (versions.own("1500"), versions.own_to_store("500")) == ("500", "1500")
    assert (versions.own("1"), versions.own("900"), versions.to_store("0")) == ("1", "1", "0")
