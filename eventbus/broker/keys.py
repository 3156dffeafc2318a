"""Every key the bus has in Redis, with its type and life. The one source of names; ACL rules are derived from it.

All keys of one partition share the hash tag `{p}`, so every function call touches one slot.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from eventbus.errors import ConfigError
from eventbus.event import ObjectReference
from eventbus.text import repair

#: The kind whose objects `record` writes.
EVENTS = "events"

_PREFIX = re.compile(r"[a-z0-9-]{1,32}\Z")


class Keys:
    """The keys of one partition. Attributes are bytes, ready to send."""

    __slots__ = (
        "aggregate",
        "attempts",
        "changes",
        "dead",
        "export",
        "exported",
        "incoming",
        "incoming_meta",
        "index_expiry",
        "index_forget",
        "index_name",
        "index_object",
        "index_subject",
        "later",
        "meta",
        "object",
        "partition",
        "producer",
        "root",
        "spam",
        "suppressed",
        "workers",
    )

    def __init__(self, prefix: str, partition: int) -> None:
        if not _PREFIX.match(prefix):
            raise ConfigError(f"prefix {prefix!r} must match [a-z0-9-]{{1,32}}", cure="correct EVENTBUS_PREFIX")
        self.partition = partition
        self.root = root = f"{prefix}:{{{partition}}}:".encode()
        #: STREAM  n, to, at, b                              trimmed below every group's floor
        self.incoming = root + b"incoming"
        #: HASH    generation, events, bytes, trimmed        as long as the stream
        self.incoming_meta = root + b"incoming:meta"
        #: prefix of HASH  last, generation                  2 h after the producer's last batch
        self.producer = root + b"producer:"
        #: prefix of STRING msgpack [last ms, local keys…]   PX 2 × interval + hold
        self.aggregate = root + b"aggregate:"
        #: prefix of STRING msgpack [tokens, last ms, …]     PX 2 × refill + hold
        self.spam = root + b"spam:"
        #: prefix of STRING msgpack, see docs/architecture   removed by `expire`; of other kinds by `remove`
        self.object = self.object_of(EVENTS)
        #: ZSET lexical  namespace/name NUL key              with the object
        self.index_name = self.index_name_of(EVENTS)
        #: ZSET lexical  namespace/kind/name NUL key         with the object
        self.index_object = root + b"index:object"
        #: ZSET by ms    key of an event that is stored      until then
        self.index_expiry = root + b"index:expiry"
        #: ZSET by ms    key of which only the count is left until then
        self.index_forget = root + b"index:forget"
        #: ZSET by ms    aggregate key, spam key              of its last use, until `forget`
        self.index_subject = root + b"index:subject"
        #: STREAM  id <rv>-0                                 trimmed to its byte bound
        self.changes = root + b"changes"
        #: HASH    rv, policy:, floor:, floor_to:, lost:, untold: of each group, counters      for ever
        self.meta = root + b"meta"
        #: HASH    letter, source, kind, type, reason → count, and its credit under the small letter; names and credit
        #:         of a letter         for ever, at most 500 names a letter
        self.suppressed = root + b"suppressed"
        #: HASH    <group>/<consumer> → heartbeat counter    removed when the consumer is
        self.workers = root + b"workers"
        #: prefix of HASH  deaths per batch id, isolation    with the group
        self.attempts = root + b"attempts:"
        #: STREAM  cause, group, deaths, b                   trimmed to its byte bound
        self.dead = root + b"dead"
        #: prefix of HASH  position, holder, generation, figures of one external sink; until the sink is forgotten
        self.export = root + b"export:"
        #: prefix of STRING msgpack [name, version, rv, count, ms], <sink>:<generation>:<key>; PX 2 × the event's life
        self.exported = root + b"exported:"
        #: prefix of ZSET by ms  key of an event, or id of a dead entry, to be written (again) then
        self.later = root + b"later:"

    def object_of(self, plural: str) -> bytes:
        """The prefix of a kind's objects; behind it stand 32 hex."""
        return self.root + b"object:%s:" % plural.encode()

    def index_name_of(self, plural: str) -> bytes:
        """The names of a kind's objects."""
        return self.root + b"index:name:%s" % plural.encode()


def bus_key(prefix: str) -> bytes:
    """HASH partitions, options, options_version: of the whole bus, for ever."""
    return Keys(prefix, 0).root + b"bus"


def partition_of(reference: ObjectReference, partitions: int) -> int:
    """The partition of an object's events: the same in every process and for ever."""
    if partitions == 1:
        return 0
    digest = _digest(8, reference.namespace, reference.kind, reference.name, reference.uid)
    return int.from_bytes(digest, "big") % partitions


def item_key(namespace: str, name: str) -> bytes:
    """32 hex: what stands for an object that is no event behind `Keys.object_of` its kind."""
    return _digest(16, namespace, name).hex().encode()


def _digest(size: int, *texts: str) -> bytes:
    """Of fields with their lengths: no two lists of texts are one."""
    digest = blake2b(digest_size=size)
    for text in texts:
        data = repair(text).encode()
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.digest()
