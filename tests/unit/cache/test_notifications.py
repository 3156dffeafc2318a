"""The buffer of a handler: order, and folding when it is full. And what a filter makes of notifications."""

from __future__ import annotations

import threading

import pytest

from eventbus.cache.delta_fifo import DeletedFinalStateUnknown
from eventbus.cache.processor import (
    FOLD_BEYOND,
    Added,
    Deleted,
    EventHandler,
    Notification,
    NotificationBuffer,
    Updated,
)
from eventbus.model.event import Event
from tests.unit.cache.things import Notes, make_thing


def update(name: str, old: int, new: int) -> Updated[Event]:
    return Updated(make_thing(name, str(old)), make_thing(name, str(new)))


def read_all(buffer: NotificationBuffer[Event]) -> list[str]:
    notes = Notes()
    handler = EventHandler(on_add=notes.on_add, on_update=notes.on_update, on_delete=notes.on_delete)
    for _ in range(len(buffer)):
        notification = buffer.get()
        assert notification is not None
        handler.handle(notification)
    return notes.notes


def test_notifications_are_read_in_order_and_not_folded_while_there_is_room() -> None:
    buffer: NotificationBuffer[Event] = NotificationBuffer(fold_beyond=4)
    for i in range(4):
        buffer.put("a", update("a", i, i + 1))
    assert read_all(buffer) == ["update a=0 a=1", "update a=1 a=2", "update a=2 a=3", "update a=3 a=4"]
    assert buffer.folded == 0


def test_beyond_the_limit_updates_of_one_object_become_one_step() -> None:
    buffer: NotificationBuffer[Event] = NotificationBuffer(fold_beyond=2)
    for i in range(10):
        buffer.put("a", update("a", i, i + 1))
        buffer.put("b", update("b", i, i + 1))
    assert read_all(buffer) == ["update a=0 a=10", "update b=0 b=10"]
    assert buffer.folded == 18


def test_additions_and_deletions_are_never_folded() -> None:
    buffer: NotificationBuffer[Event] = NotificationBuffer(fold_beyond=0)
    for _ in range(2):
        buffer.put("a", Added(make_thing("a", "0")))
        for i in range(3):
            buffer.put("a", update("a", i, i + 1))
        buffer.put("a", Deleted(make_thing("a", "3"), make_thing("a", "3")))
    assert read_all(buffer) == ["add a=0", "update a=0 a=3", "delete a=3"] * 2
    assert buffer.folded == 4


def test_an_update_of_an_object_that_was_read_is_not_folded_into_the_past() -> None:
    buffer: NotificationBuffer[Event] = NotificationBuffer(fold_beyond=1)
    buffer.put("a", update("a", 0, 1))
    assert buffer.get() == update("a", 0, 1)
    buffer.put("b", update("b", 0, 1))
    buffer.put("a", update("a", 1, 2))
    assert read_all(buffer) == ["update b=0 b=1", "update a=1 a=2"]


def test_what_waits_is_bounded_by_the_objects_there_are() -> None:
    buffer: NotificationBuffer[Event] = NotificationBuffer()
    for i in range(20_000):
        buffer.put(f"n{i % 10}", update(f"n{i % 10}", i, i + 10))
    assert len(buffer) == FOLD_BEYOND == 1_024
    assert buffer.folded == 20_000 - 1_024


def test_a_closed_buffer_forgets_and_ends_its_reader() -> None:
    buffer: NotificationBuffer[Event] = NotificationBuffer()
    read: list[Notification[Event] | None] = []
    reader = threading.Thread(target=lambda: read.append(buffer.get()))
    reader.start()
    buffer.close()
    reader.join(30)
    buffer.put("a", update("a", 0, 1))
    assert (read, len(buffer), buffer.get()) == ([None], 0, None)


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def handler(notes: Notes) -> EventHandler[Event]:
    """Sees only what is on."""
    return EventHandler(
        on_add=notes.on_add,
        on_update=notes.on_update,
        on_delete=notes.on_delete,
        filter=lambda found: found.message == "on",
    )


ON, OFF = make_thing("a", "on"), make_thing("a", "off")


@pytest.mark.parametrize(
    ("notification", "expected"),
    [
        (Added(ON), ["add a=on"]),
        (Added(OFF), []),
        (Updated(ON, ON), ["update a=on a=on"]),
        (Updated(OFF, ON), ["add a=on"]),
        (Updated(ON, OFF), ["delete a=on"]),
        (Updated(OFF, OFF), []),
        (Deleted(ON, last=ON), ["delete a=on"]),
        (Deleted(OFF, last=OFF), []),
        (Deleted(OFF, last=ON), ["delete a=off"]),
        (Deleted(ON, last=OFF), []),
        (Deleted(DeletedFinalStateUnknown("a", ON), last=ON), ["delete a=on unseen"]),
        (Deleted(DeletedFinalStateUnknown("a", OFF), last=OFF), []),
    ],
)
def test_what_does_not_pass_the_filter_does_not_exist_for_the_handler(
    handler: EventHandler[Event], notes: Notes, notification: Notification[Event], expected: list[str]
) -> None:
    handler.handle(notification)
    assert notes.notes == expected


def test_functions_that_were_not_given_are_not_called() -> None:
    for notification in (Added(ON), Updated(OFF, ON), Deleted(ON, ON)):
        EventHandler[Event]().handle(notification)
