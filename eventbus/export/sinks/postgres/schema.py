"""The tables of the PostgreSQL sink, the steps that make them, and the one statement that writes.

The tables lie in the first schema of the role's search_path. One bus a schema: versions of two buses do not compare.

    one object's history      WHERE namespace = … AND object_kind = … AND object_name = … ORDER BY last_seen DESC
    the newest, and retention WHERE last_seen < …                                         ORDER BY last_seen DESC
    warnings of a reason      WHERE type = 'Warning' AND reason = … AND last_seen > …     ORDER BY last_seen DESC
"""

from __future__ import annotations

from typing import Final, LiteralString

#: Step n leads from version n to n + 1. A step that was released is never changed.
STEPS: Final[tuple[LiteralString, ...]] = (
    # Keys are compared byte by byte ("C"): faster, and no change of locale can break an index.
    """
    CREATE TABLE eventbus_events (
        namespace   text COLLATE "C" NOT NULL,
        name        text COLLATE "C" NOT NULL,
        uid         text COLLATE "C" NOT NULL,
        rv          bigint           NOT NULL,
        object_kind text COLLATE "C" NOT NULL,
        object_name text COLLATE "C" NOT NULL,
        object_uid  text COLLATE "C" NOT NULL,
        type        text COLLATE "C" NOT NULL,
        reason      text COLLATE "C" NOT NULL,
        message     text             NOT NULL,
        count       integer          NOT NULL,
        first_seen  timestamptz,
        last_seen   timestamptz      NOT NULL,
        event       jsonb            NOT NULL,
        PRIMARY KEY (namespace, name)
    );
    COMMENT ON COLUMN eventbus_events.rv IS 'version of the event in the store; a write with an older one is ignored';
    COMMENT ON COLUMN eventbus_events.event IS 'the whole core/v1 Event';
    CREATE INDEX eventbus_events_object ON eventbus_events (namespace, object_kind, object_name, last_seen DESC);
    CREATE INDEX eventbus_events_last_seen ON eventbus_events (last_seen DESC);
    CREATE INDEX eventbus_events_warnings ON eventbus_events (reason, last_seen DESC) WHERE type = 'Warning';
    """,
    # Versions grow with time, and so do rows: a BRIN index costs a write next to nothing.
    """
    ALTER TABLE eventbus_events ADD COLUMN origin text COLLATE "C" NOT NULL DEFAULT '';
    COMMENT ON COLUMN eventbus_events.origin IS 'bus and partition that wrote the row last; empty: before version 2';
    CREATE INDEX eventbus_events_rv ON eventbus_events USING brin (rv);
    """,
)

# One JSON array: the cheapest for the client, one round trip, no temporary table, fit for any pooler.
# A row with the same name for another object (two partitions made it in the same nanosecond) is kept: see CLASHES.
UPSERT: Final[LiteralString] = """
    INSERT INTO eventbus_events AS old (namespace, name, uid, rv, object_kind, object_name, object_uid,
                                        type, reason, message, count, first_seen, last_seen, event, origin)
    SELECT coalesce(meta->>'namespace', ''), coalesce(meta->>'name', ''), coalesce(meta->>'uid', ''),
           (meta->>'resourceVersion')::bigint,
           coalesce(object->>'kind', ''), coalesce(object->>'name', ''), coalesce(object->>'uid', ''),
           coalesce(event->>'type', ''), coalesce(event->>'reason', ''), coalesce(event->>'message', ''),
           coalesce((event->'series'->>'count')::integer, (event->>'count')::integer, 0),
           coalesce(event->>'firstTimestamp', event->>'eventTime', meta->>'creationTimestamp')::timestamptz,
           coalesce((coalesce(event->'series'->>'lastObservedTime', event->>'lastTimestamp', event->>'eventTime',
                              event->>'firstTimestamp', meta->>'creationTimestamp'))::timestamptz, now()),
           event, $2
      FROM jsonb_array_elements($1::jsonb) AS event,
           LATERAL (SELECT event->'metadata' AS meta, event->'involvedObject' AS object OFFSET 0) AS parts
    ON CONFLICT (namespace, name) DO UPDATE
       SET uid = EXCLUDED.uid, rv = EXCLUDED.rv, type = EXCLUDED.type, reason = EXCLUDED.reason,
           message = EXCLUDED.message, count = EXCLUDED.count, first_seen = EXCLUDED.first_seen,
           last_seen = EXCLUDED.last_seen, event = EXCLUDED.event, origin = EXCLUDED.origin
     WHERE old.rv < EXCLUDED.rv AND old.object_kind = EXCLUDED.object_kind
       AND old.object_name = EXCLUDED.object_name AND old.object_uid = EXCLUDED.object_uid
"""

#: Which of the rows of UPSERT's parameter (from 0) have a name that an event of another object has.
CLASHES: Final[LiteralString] = """
    SELECT place - 1
      FROM jsonb_array_elements(%s::jsonb) WITH ORDINALITY AS given(body, place)
      JOIN eventbus_events AS old ON old.namespace = coalesce(body->'metadata'->>'namespace', '')
                                 AND old.name = coalesce(body->'metadata'->>'name', '')
     WHERE (old.object_kind, old.object_name, old.object_uid)
           <> (coalesce(body->'involvedObject'->>'kind', ''), coalesce(body->'involvedObject'->>'name', ''),
               coalesce(body->'involvedObject'->>'uid', ''))
"""


#: Rows that one partition of one bus has written, with versions between two, and that were seen lately.
HELD: Final[LiteralString] = """
    SELECT event::text FROM eventbus_events
     WHERE origin = %s AND rv > %s AND rv <= %s AND last_seen >= %s ORDER BY rv LIMIT %s
"""

DELETE: Final[LiteralString] = """
    DELETE FROM eventbus_events AS old
     USING (SELECT body->'metadata' AS meta FROM jsonb_array_elements(%s::jsonb) AS body) AS given
     WHERE old.namespace = coalesce(meta->>'namespace', '') AND old.name = coalesce(meta->>'name', '')
       AND old.uid = coalesce(meta->>'uid', '') AND old.rv = (meta->>'resourceVersion')::bigint
"""
