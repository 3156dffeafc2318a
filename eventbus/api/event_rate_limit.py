"""Bounds how fast events are written, by the API server's own configuration: admission plugin EventRateLimit.

Limits hold for this worker alone, as they do for each API server, or for all workers together: `shared`. Source:
`plugin/pkg/admission/eventratelimit`. Departures: writes through events.k8s.io are bounded, too, and a refusal says
when to come again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b

from eventbus.api import status
from eventbus.api.local_buckets import LocalBuckets, Wanted
from eventbus.api.rate_limits import Limit, LimitType
from eventbus.broker.function_values import BucketUse
from eventbus.broker.functions import Functions
from eventbus.clock import Clock, SystemClock
from eventbus.errors import EventBusError
from eventbus.event import Event
from eventbus.log import log


class EventRateLimit:
    """Token buckets by what each limit names. Thread-safe.

    Args: shared: the buckets lie in Redis, and all workers with the same limits take from the same. Where Redis does
          not give them, this worker's own hold, and that is told.
    """

    def __init__(self, limits: Sequence[Limit], *, shared: bool = False, clock: Clock | None = None) -> None:
        self._limits = limits
        self.shared = shared  #: they take a call of Redis
        self._local = LocalBuckets(limits, clock or SystemClock())
        self._alone = False
        self.refused: Counter[str] = Counter()  #: by type
        self.unshared = 0  #: how often this worker's own buckets held in the place of shared ones

    def admit(self, user: str, event: Event, functions: Functions | None = None) -> None:
        """Take a token of every bucket, also where one has none. Raises: Refusal: 429; the last refusal is told.

        *functions*: of partition 0, for shared buckets.
        """
        wanted = [Wanted(limit, _key(limit.type, user, event), 1) for limit in self._limits]
        waits_s = self._take(wanted, functions, all_or_none=False)
        lacking = [(one, wait_s) for one, wait_s in zip(wanted, waits_s, strict=True) if wait_s > 0]
        for one, _ in lacking:
            self.refused[one.limit.type] += 1
        if lacking:
            raise _refusal(*lacking[-1])

    def admit_all(self, user: str, events: Iterable[Event], functions: Functions | None = None) -> None:
        """Take a request of many events whole, or none of it: of the latter no token is taken.

        Where every bucket has a token, the rest is taken on credit, and the next request waits until it is paid off:
        so batches that are larger than a burst get through, and no more a second than the limits say.

        Raises: Refusal: 429.
        """
        every = list(events)
        wanted = [
            Wanted(limit, key, count)
            for limit in self._limits
            for key, count in Counter(_key(limit.type, user, event) for event in every).items()
        ]
        waits_s = self._take(wanted, functions, all_or_none=True)
        longest_s, one = max(zip(waits_s, wanted, strict=True), key=lambda found: found[0], default=(0.0, None))
        if one is not None and longest_s > 0:
            self.refused[one.limit.type] += 1
            raise _refusal(one, longest_s)

    def _take(self, wanted: Sequence[Wanted], functions: Functions | None, *, all_or_none: bool) -> list[float]:
        """Seconds until each bucket has a token; 0: it had one."""
        if not self.shared or functions is None:
            return self._local.take(wanted, all_or_none=all_or_none)
        uses = [BucketUse(_digest(one), one.limit.qps, one.limit.burst, one.tokens) for one in wanted]
        try:
            waits_s = functions.limit_rate(uses, all_or_none=all_or_none)
        except EventBusError as error:
            self.unshared += 1
            if not self._alone:
                self._alone = True
                log.warning("event rate limits are not shared for now, each worker has its own: %s", error)
            return self._local.take(wanted, all_or_none=all_or_none)
        if self._alone:
            self._alone = False
            log.warning("event rate limits are shared again")
        return waits_s


def _refusal(wanted: Wanted, wait_s: float) -> status.Refusal:
    return status.too_many(f"limit reached on type {wanted.limit.type} for key {wanted.key[:200]}", wait_s)


def _digest(wanted: Wanted) -> bytes:
    """The end of a shared bucket's key: other limits have other buckets, so changing a file mixes nothing."""
    limit = wanted.limit
    text = f"{limit.type} {limit.qps} {limit.burst} {wanted.key}".encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=16).hexdigest().encode()


def _key(sort: LimitType, user: str, event: Event) -> str:
    match sort:
        case LimitType.SERVER:
            return ""
        case LimitType.NAMESPACE:
            return event.metadata.namespace
        case LimitType.USER:
            return user
    reference, source = event.involved_object, event.source
    return "".join(
        (
            source.component,
            source.host,
            reference.kind,
            reference.namespace,
            reference.name,
            reference.uid,
            reference.api_version,
        )
    )


__all__ = ["EventRateLimit"]
