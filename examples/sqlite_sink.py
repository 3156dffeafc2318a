"""Events in a SQLite file: eventbus worker export --to sqlite:events.db"""

import sqlite3

from eventbus import Event
from eventbus.errors import SinkUnreachable
from eventbus.export.sinks import EventPatch, SinkMode, SinkOptions
from eventbus.model.encoding.event_json import encode_core

TABLE = "CREATE TABLE IF NOT EXISTS events (uid TEXT PRIMARY KEY, version INTEGER, count INTEGER, event TEXT)"
UPSERT = """INSERT INTO events VALUES (?, ?, ?, ?) ON CONFLICT (uid) DO UPDATE SET
    version = excluded.version, count = excluded.count, event = excluded.event WHERE excluded.version > version"""


class SqliteSink:
    mode = SinkMode.UPSERT  # a repeat changes nothing, and an older version never overwrites a newer one

    def __init__(self, url: str, options: SinkOptions) -> None:
        self.name = options.name
        self._path, self._timeout_s = url.partition(":")[2], options.timeout_s

    def update(self, event: Event) -> Event:
        row = (event.metadata.uid, int(event.metadata.resource_version), event.count, encode_core(event).decode())
        try:
            with sqlite3.connect(self._path, timeout=self._timeout_s) as database:
                database.execute(TABLE)
                database.execute(UPSERT, row)
            database.close()
        except sqlite3.OperationalError as error:  # locked, no such folder, disk full: wait for it
            raise SinkUnreachable(str(error)) from error
        return event

    create = update  # an upsert does not ask whether the event is there

    def patch(self, event: Event, patch: EventPatch) -> Event:
        return self.update(event)  # *event* is whole

    def close(self) -> None:
        pass
