"""The numbers of events over HTTP where the store is emptied after a look at it, before what was seen has a number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from eventbus.api import status
from eventbus.api.versions.numbered_objects import open_objects
from eventbus.api.versions.numbering import MadeAnew, Numbering
from eventbus.api.versions.ordered_hub import OrderedHub
from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.functions import Functions
from eventbus.errors import NotFound
from eventbus.model.event import Event
from eventbus.model.kinds import EVENT
from eventbus.model.list_watch import ListOptions
from eventbus.settings import Settings
from eventbus.store.change_hub import ChangeHub
from eventbus.store.writer import ObjectWriter
from tests.builders import make_similar_events

FIRST, SECOND, THIRD = make_similar_events(3)


@pytest.fixture
def bus(embedded_url: str, prefix: str) -> Bus:
    return open_bus(embedded_url, Settings(prefix=prefix, partitions=2))


@pytest.fixture
def client(bus: Bus) -> Iterator[Client]:
    with closing(bus.client(name="test")) as made:
        yield made


@pytest.fixture
def objects(bus: Bus, client: Client) -> Iterator[ObjectWriter[Event]]:
    """Events as an API worker has them; of the second of two it does not know the number yet."""
    with closing(Numbering(bus)) as numbering, closing(ChangeHub(bus)) as changes:
        hub = OrderedHub(changes, numbering)
        made = open_objects(bus=bus, client=client, hub=hub, kind=EVENT, numbering=numbering)
        made.create(FIRST)
        made.list()
        open_objects(bus=bus, client=client, hub=hub, kind=EVENT, numbering=None).create(SECOND)
        yield made
        hub.close()


@pytest.fixture
def empties(bus: Bus, client: Client, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Have the next so many looks at the line come after everything is gone."""
    left = 0
    ask = Functions.checkpoint

    def emptied(functions: Functions, versions: Any, **known: Any) -> Any:
        nonlocal left
        if left and not known.get("whole"):
            left -= 1
            for key in client.keys(f"{bus.prefix}:*"):
                client.delete(key)
        return ask(functions, versions, **known)

    def empty(times: int) -> None:
        nonlocal left
        left = times

    monkeypatch.setattr(Functions, "checkpoint", emptied)
    return empty


def test_a_list_is_read_again(objects: ObjectWriter[Event], empties: Callable[[int], None]) -> None:
    empties(1)
    assert objects.list().items == ()


def test_what_a_watch_begins_with_is_read_again(objects: ObjectWriter[Event], empties: Callable[[int], None]) -> None:
    empties(1)
    watch = objects.open_watch(ListOptions(), lambda: None)
    objects.close_watch(watch)


def test_one_object_is_read_again(objects: ObjectWriter[Event], empties: Callable[[int], None]) -> None:
    empties(1)
    with pytest.raises(NotFound):
        objects.get(SECOND.metadata.name, SECOND.metadata.namespace)


def test_a_write_that_is_lost_can_be_sent_again(objects: ObjectWriter[Event], empties: Callable[[int], None]) -> None:
    empties(1)
    with pytest.raises(MadeAnew) as lost:
        objects.create(THIRD)
    assert status.api_error_of(lost.value).code == 503
    assert objects.create(THIRD).metadata.name == THIRD.metadata.name
