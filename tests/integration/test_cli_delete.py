"""`eventbus delete events` by object or fields, over Redis and through an API worker."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from eventbus import EventBroadcaster, ObjectReference, ObjectStore, Settings
from eventbus.workers.cli import main
from tests.support.both_ways import BOTH, either_way
from tests.waiting import eventually

ALL = {
    ("shop", "Customer", "4711", "Registered"),
    ("shop", "Customer", "4711", "Paid"),
    ("support", "Customer", "4711", "Paid"),
    ("shop", "Customer", "47", "Registered"),
    ("shop", "Order", "4711", "Paid"),
}
OF_SHOP = {event for event in ALL if event[:3] == ("shop", "Customer", "4711")}


@pytest.fixture
def settings(embedded_url: str, prefix: str) -> Settings:
    return Settings(redis_url=embedded_url, prefix=prefix, worker_block_ms=100, partitions=3)


@pytest.fixture
def store(settings: Settings) -> Iterator[ObjectStore]:
    with ObjectStore.open(settings=settings) as store, EventBroadcaster(settings=settings) as broadcaster:
        broadcaster.start_recording_to_sink()
        recorder = broadcaster.new_recorder("shop")
        for namespace, kind, name, reason in ALL:
            recorder.event(ObjectReference(kind, namespace, name), "Normal", reason, "text")
        eventually(lambda: stored(store) == ALL)
        yield store


@pytest.fixture
def _bus(
    request: pytest.FixtureRequest, settings: Settings, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    with either_way(request, settings.redis_url, settings, ["edit=user:system:local"]) as url:
        monkeypatch.setenv("EVENTBUS_PREFIX", settings.prefix)
        monkeypatch.setenv("EVENTBUS_REDIS_URL" if url == settings.redis_url else "EVENTBUS_URL", url)
        yield


def stored(store: ObjectStore) -> set[tuple[str, str, str, str]]:
    about = [(event.involved_object, event.reason) for event in store.list().items]
    return {(one.namespace, one.kind, one.name, reason) for one, reason in about}


def delete(*arguments: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(main, ["delete", *arguments], input=answer)


@pytest.mark.usefixtures("_bus")
@pytest.mark.parametrize(
    ("arguments", "gone"),
    [
        (("--for", "customer/4711", "-n", "shop"), OF_SHOP),
        (("--for", "shop/Customer/4711"), OF_SHOP),
        (("--for", "customer/4711", "-A"), {event for event in ALL if event[1:3] == ("Customer", "4711")}),
        (
            ("--field-selector", "reason=Paid", "-n", "shop"),
            {event for event in ALL if (event[0], event[3]) == ("shop", "Paid")},
        ),
        (
            ("--for", "shop/customer/4711", "--field-selector", "reason!=Paid"),
            OF_SHOP - {("shop", "Customer", "4711", "Paid")},
        ),
    ],
)
def test_events_that_match_are_deleted_and_counted(
    store: ObjectStore, arguments: tuple[str, ...], gone: set[tuple[str, str, str, str]]
) -> None:
    ran = delete("events", *arguments, "--yes")
    assert (ran.exit_code, ran.stderr) == (0, "")
    *lines, count = ran.stdout.splitlines()
    assert len(lines) == len(gone)
    assert all(line.startswith('event "') and line.endswith('" deleted') for line in lines)
    assert count == ("1 event deleted" if len(gone) == 1 else f"{len(gone)} events deleted")
    assert stored(store) == ALL - gone


@pytest.mark.usefixtures("_bus")
@pytest.mark.parametrize("_bus", BOTH, indirect=True)
def test_a_dry_run_and_a_no_delete_nothing_and_a_yes_deletes(store: ObjectStore) -> None:
    about = ("events", "--for", "shop/customer/4711")
    ran = delete(*about, "--dry-run")
    assert (ran.exit_code, ran.stdout.splitlines()[-1]) == (0, "2 events would be deleted")
    assert json.loads(delete(*about, "--dry-run", "-o", "json").stdout) == {"deleted": [], "matched": 2}
    ran = delete(*about, answer="n\n")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "Delete 2 events of namespace shop?" in ran.stderr
    assert delete(*about).exit_code == 1, "there is no answer"
    assert stored(store) == ALL
    ran = delete(*about, "-o", "json", answer="y\n")
    assert {one["namespace"] for one in json.loads(ran.stdout)["deleted"]} == {"shop"}
    assert stored(store) == ALL - OF_SHOP
    assert delete(*about).stdout == "No events match.\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("events",),
        (),
        ("events", "-A"),
        ("event/one", "--for", "shop/customer/4711"),
        ("pods", "--for", "shop/customer/4711"),
        ("--field-selector", "reason=Paid"),
        ("node/one", "--dry-run"),
    ],
)
def test_wrong_usage_is_refused(arguments: tuple[str, ...]) -> None:
    ran = delete(*arguments)
    assert ran.exit_code == 2, ran.output
