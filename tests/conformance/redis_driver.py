"""`correlate_and_store` behind the protocol of the runner: one stream, one consumer, the caller's clock."""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.model.event import Event
from eventbus.settings import Options
from eventbus.store.stored import View, decode_stored
from tests.conformance.driver import SKIPPED, Action, Batch, Decision, Patch, StoredEvent
from tests.conformance.recording import Recording
from tests.stored_layout import form_of

_ACTIONS = {
    "c": Action.CREATE,
    "k": Action.CREATE,
    "p": Action.PATCH,
    "r": Action.PATCH_CREATE,
    "n": Action.PATCH_CREATE,
}
#: Letters of events that repeat a remembered one.
_REPEATS = "kpr"


class RedisDriver:
    """On the server at *url*, else on that of EVENTBUS_TEST_REDIS_URL, else on one of its own, which `stop` ends.

    A fresh prefix for every scenario.
    """

    def __init__(self, url: str = "") -> None:
        self._url = url or os.environ.get("EVENTBUS_TEST_REDIS_URL", "")
        self._server: EmbeddedServer | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._recording: Recording
        self._started = False

    def start(self, options: Options) -> None:
        self._recording = Recording(self._url or self._own_server(), f"conf-{secrets.token_hex(6)}", options)
        self._started = True

    def record(self, at_ms: int, events: Sequence[Event]) -> list[Decision]:
        if len(events) > 1:
            return [decision for event in events for decision in self.record(at_ms, [event])]
        letter = self._call([Batch(at_ms, events)])[0]
        if letter in "sS":
            return [SKIPPED]
        return [self._decision(letter)]

    def record_batches(self, batches: Sequence[Batch]) -> list[Decision]:
        return [
            SKIPPED if letter in "sS" else Decision(aggregated=letter.isupper(), action=_ACTIONS[letter.lower()])
            for letter in self._call(batches)
        ]

    def change_options(self, options: Options) -> None:
        """Go on with these, over the state that is there."""
        self._recording.change_options(options)

    def messages_of_sets(self) -> list[int]:
        """Count the messages of each set of similar ones."""
        return self._recording.messages_of_sets()

    def delete_all(self) -> None:
        self.delete(self._recording.store.list().items)

    def delete_about(self, name: str) -> None:
        """Take every event about objects of this *name* out of the store."""
        self.delete(self._recording.store.list(name=name).items)

    def delete(self, events: Sequence[Event]) -> None:
        """Take these out of the store, one by one."""
        for event in events:
            self._recording.store.delete(event.metadata.namespace, event.metadata.name)

    def expire_all(self) -> None:
        """Let the hour of every stored event be over; what the correlator remembers stays."""
        recording, options = self._recording, self._recording.bus.options
        later_ms = time.time_ns() // 1_000_000 + options.event_ttl_s * 1000 + 1
        while due := recording.client.zrange(recording.keys.index_expiry, 0, 99):
            recording.functions.expire(options, due, later_ms)

    def final_state(self) -> list[StoredEvent]:
        return [
            StoredEvent(
                event.metadata.namespace,
                event.metadata.name,
                event.count,
                event.message,
                event.first_timestamp,
                event.last_timestamp,
            )
            for event in self._recording.written()
        ]

    def close(self) -> None:
        if self._started:
            self._started = False
            self._recording.close()

    def stop(self) -> None:
        """Stop the server, if it is ours."""
        if self._server is not None:
            self._server.stop()
            self._server = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _own_server(self) -> str:
        if self._server is None or self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="eventbus-conformance-")
            self._server = EmbeddedServer(Path(self._folder.name), config={"appendonly": "no"})
        return self._server.start()

    def _call(self, batches: Sequence[Batch]) -> str:
        recording = self._recording
        entries = [recording.append(batch.at_ms, batch.events) for batch in batches]
        recording.take("driver", len(entries))
        replies = recording.record("driver", entries)
        assert "-" not in replies, "the entry was not ours"
        return "".join(replies)

    def _decision(self, letter: str) -> Decision:
        packed = self._recording.last_change()
        event = decode_stored(packed, View.WRITTEN)
        assert event is not None
        plain = letter.lower()
        patch = Patch(event.count, event.last_timestamp, event.message) if plain in _REPEATS else None
        assert (form_of(packed) == "a") is letter.isupper()
        return Decision(
            count=event.count,
            message=event.message,
            name=event.metadata.name,
            namespace=event.metadata.namespace,
            first=event.first_timestamp,
            last=event.last_timestamp,
            action=_ACTIONS[plain],
            aggregated=letter.isupper(),
            patch=patch,
        )
