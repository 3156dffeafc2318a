"""Every key the bus has in Redis, with its type and life. The one source of names; ACL rules are derived from it.

All keys of one partition share the hash tag `{p}`, so every function call touches one slot.
"""

from __future__ import annotations

import re
from binascii import b2a_base64
from collections.abc import Mapping
from hashlib import blake2b

from eventbus.errors import ConfigError
from eventbus.model.event import ObjectReference
from eventbus.util.text import repair

#: The kind of the objects that `correlate_and_store` writes.
EVENTS = "events"
#: Kinds that run programs, or hold secrets. Their keys begin with a name of their own: Redis patterns cannot exclude
#: keys, and so the other roles' patterns do not match them.
OPERATED = frozenset({"pods", "configmaps", "secrets"})
#: The store's own group. Created when the bus is first opened, at the oldest entry. Entries stay until it has finished
#: them.
SINK_GROUP = "sink"

#: Characters of an id, with which the keys of objects and states end, and the members of indexes: 84 bits. So a member
#: that is an id just fits into 16 bytes of Redis' memory, and equal ones are not met by chance.
ID_CHARS = 14
#: No hyphen: `later:` has such ids and ids of entries, which have one.
_NO_HYPHEN = bytes.maketrans(b"+/", b"._")

_PREFIX = re.compile(r"[a-z0-9-]{1,32}\Z")

#: No counter of Redis is longer; Python refuses to read text of thousands of digits.
_DIGITS = 19


class Keys:
    """The keys of one partition. Attributes are bytes, ready to send."""

    def __init__(self, prefix: str, partition: int) -> None:
        if not _PREFIX.match(prefix):
            raise ConfigError(f"prefix {prefix!r} must match [a-z0-9-]{{1,32}}", cure="correct EVENTBUS_PREFIX")
        self.partition = partition
        self.root = root = f"{prefix}:{{{partition}}}:".encode()
        #: STREAM  n, to, at, b                              trimmed below every group's floor
        self.incoming = root + b"incoming"
        #: HASH    generation, events, bytes, trimmed        as long as the stream
        self.incoming_meta = root + b"incoming:meta"
        #: prefix of HASH  last, generation; the secret of the producer follows; 2 h after its last batch
        self.producer = root + b"producer:"
        #: prefix of STRING ns of its first request, digest of the request with an Idempotency-Key; 10 min
        self.idempotency = root + b"idempotency:"
        #: prefix of STRING ns of a run's start, by a ping; of partition 0, PX three days
        self.started = root + b"started:"
        #: prefix of STRING msgpack [tokens, last ms, …, sets]  until `forget`; PX hold + 2 × interval or refill
        self.correlation = root + b"corr:"
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
        #: ZSET by ms    key of an event counted, not written until it was shown
        self.index_refresh = root + b"index:refresh"
        #: prefix of HASH  namespace, kind, type, reason → occurrences, of a minute since 1970; `occurrences_s`
        self.occurrences = root + b"occurrences:"
        #: HASH    fields of each group (`groups.py`), counters                      permanent
        self.meta = root + b"meta"
        #: HASH    times, last_key: the number of corrupt values that functions have found; permanent
        self.corrupt = root + b"spoiled"
        #: HASH    letter, source, kind, type, reason → count, and its credit under the small letter; names and credit
        #:         of a letter         for ever, at most 500 names a letter
        self.suppressed = root + b"suppressed"
        #: HASH    <group>/<consumer> → heartbeat counter    removed when the consumer is
        self.workers = root + b"workers"
        #: STREAM  v: versions of events on all partitions, at their number over HTTP; of partition 0, bounded by bytes
        self.checkpoints = root + b"checkpoints"
        #: HASH    <build>/worker, /recorder → ms, formats, codecs, name of the last that announced it; of partition 0
        self.builds = root + b"builds"
        #: HASH    worker → JSON [ms, text]  a problem of its configuration; of partition 0, a minute after the last
        self.problems = root + b"problems"
        #: HASH    holder, term, beats, rules, receivers and positions of the notifier; of partition 0, for ever
        self.notify = root + b"notify"
        #: prefix of STRING msgpack, a<alert> or g<group>    of partition 0; PX two weeks and more after its last write
        self.notify_state = root + b"notify:"
        #: ZSET by ms    a<alert>, g<group>                   until it expires; of partition 0
        self.index_notify = root + b"index:notify"
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
        """Return the prefix of a kind's objects; an id follows it."""
        return self._root_of(plural) + b"object:%s:" % plural.encode()

    def index_name_of(self, plural: str) -> bytes:
        """ZSET lexical: the names of a kind's objects."""
        return self._root_of(plural) + b"index:name:%s" % plural.encode()

    def changes_of(self, plural: str) -> bytes:
        """STREAM, id <version>-0: the changes of a kind, an entry a call; trimmed to its byte bound."""
        return self._root_of(plural) + b"changes:%s" % plural.encode()

    def version_of(self, plural: str) -> bytes:
        """STRING: a kind's newest version, the bytes ever added to its changes, and its history; permanent."""
        return self._root_of(plural) + b"version:%s" % plural.encode()

    def note_of(self, of: str) -> bytes:
        """STRING msgpack: the remaining writes of an interrupted call; until they are done.

        *of*: the plural of a kind, or `bus:incoming`, `bus:dead`, `bus:notify`, `group:<name>`, `export:<sink>`.
        """
        return self._root_of(of) + b"note:%s" % of.encode()

    def _root_of(self, plural: str) -> bytes:
        return self.root + b"operated:" if plural in OPERATED else self.root


def bus_key(prefix: str) -> bytes:
    """HASH id, format, codecs, partitions, options, options_version: of the whole bus, for ever."""
    return Keys(prefix, 0).root + b"bus"


def name_text(name: bytes) -> str:
    """Decode the name or counter of a worker, also invalid UTF-8; `name_bytes` returns the same bytes."""
    return name.decode("utf-8", "surrogateescape")


def name_bytes(text: str) -> bytes:
    """Return the bytes that `name_text` turned into *text*."""
    return text.encode("utf-8", "surrogateescape")


def whole_number(text: bytes | str | None) -> int | None:
    """Parse decimal digits; return None if *text* is not a number, or too large for a counter of Redis."""
    if not text or len(text) > _DIGITS or not (text.isascii() and text.isdigit()):
        return None
    return int(text)


def version_in(text: bytes | None) -> int:
    """Parse the newest version from a version key's value; 1 if nothing was ever written, since 0 means any version."""
    match = re.match(rb"(\d{1,16}) ", text or b"")
    return int(match[1]) if match else 1


def versions_in(entry: tuple[bytes, Mapping[bytes, bytes]]) -> tuple[int, int]:
    """Return the first and the last version of an entry of changes; its id is the last one."""
    last = int(entry[0].partition(b"-")[0])
    return whole_number(entry[1].get(b"f")) or last, last


def history_in(text: bytes | None) -> str:
    """Parse which server process has written the newest version, from a version key's value; "" is unknown."""
    match = re.match(rb"\d+ \d+ ([0-9a-f]+)\Z", text or b"")
    return match[1].decode() if match else ""


def bytes_in(text: bytes | None) -> int:
    """Parse the number of bytes ever added to a kind's changes from its version key's value."""
    match = re.match(rb"\d+ (\d{1,16})(?: |\Z)", text or b"")
    return int(match[1]) if match else 0


def partition_of(reference: ObjectReference, partitions: int) -> int:
    """Return the partition of an object's events: the same in every process, and never changed."""
    if partitions == 1:
        return 0
    digest = _digest(8, reference.namespace, reference.kind, reference.name, reference.uid)
    return int.from_bytes(digest, "big") % partitions


def item_key(namespace: str, name: str) -> bytes:
    """Return the id of an object (not an event), which follows the prefix `Keys.object_of` its kind."""
    return id_text(_digest(14, namespace, name))[:ID_CHARS]


def id_text(digest: bytes) -> bytes:
    """Write a digest in A-Z, a-z, 0-9, . and _: an id is 14 characters of that, and 21 bytes are two of them."""
    return b2a_base64(digest, newline=False).translate(_NO_HYPHEN)


def _digest(size: int, *texts: str) -> bytes:
    """Hash *texts*, each with its length in front, so that no two lists of texts hash alike."""
    digest = blake2b(digest_size=size)
    for text in texts:
        data = repair(text).encode()
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.digest()
