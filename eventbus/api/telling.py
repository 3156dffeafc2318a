"""Reports requests: counters with the API server's names and labels, and an audit line for each write."""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from aiohttp import web

from eventbus.api.event_rate_limit import EventRateLimit
from eventbus.api.limits import Limits, is_long, only_reads
from eventbus.api.shared import USER, WHAT, require
from eventbus.text import printable

log = logging.getLogger("eventbus.audit")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: Seconds; those of apiserver_request_duration_seconds that say something here.
_BUCKETS: Final = (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2, 3, 5, 10, 15, 30, 60)
_PREFIX: Final = "eventbus_apiserver_"
_VERBS: Final = {"GET": "GET", "POST": "POST", "PUT": "PUT", "PATCH": "PATCH", "DELETE": "DELETE"}
_LABELS: Final = ("verb", "group", "version", "resource", "scope")
#: Set by who knows what is asked for; of others these are empty.
ASKED: Final = web.RequestKey("asked", tuple[str, ...])


class Telling:
    """Counts requests, and writes the audit. Lives in the loop."""

    def __init__(self, *, limits: Limits, audit: bool, rates: EventRateLimit | None = None) -> None:
        self._limits = limits
        self._rates = rates
        self._audit = audit
        self._requests: Counter[tuple[str, ...]] = Counter()
        self._durations: defaultdict[tuple[str, ...], list[float]] = defaultdict(lambda: [0.0] * (len(_BUCKETS) + 2))

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Measure each request until its answer has ended, and note it by its code; 0: no answer."""
        begun, code = time.monotonic(), 0
        try:
            answer = await handler(request)
            code = answer.status
            return answer
        finally:
            self._note(request, code, time.monotonic() - begun)

    async def metrics(self, request: web.Request) -> web.Response:
        """Prometheus text."""
        require(request, "get", "metrics")
        text = "\n".join(self._lines()) + "\n"
        return web.Response(text=text, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    def _note(self, request: web.Request, code: int, took_s: float) -> None:
        labels = request.get(ASKED) or (_VERBS.get(request.method, "other"), "", "", "", "")
        self._requests[*labels, str(code)] += 1
        if not is_long(request):
            found = self._durations[labels]
            for place, most in enumerate(_BUCKETS):
                found[place] += took_s <= most
            found[-2] += 1
            found[-1] += took_s
        if self._audit and not only_reads(request):
            user = request.get(USER)
            log.info(
                "audit: user=%s from=%s %s %s -> %d in %.0f ms%s",
                printable(user.name) if user else "-",
                request.remote or "unix",
                request.method,
                printable(request.rel_url.raw_path)[:500],
                code,
                took_s * 1000,
                f": {what}" if (what := request.get(WHAT)) else "",
            )

    def _lines(self) -> Iterator[str]:
        yield f"# TYPE {_PREFIX}request_total counter"
        for (*labels, code), count in sorted(self._requests.items()):
            yield f'{_PREFIX}request_total{{{_labels(labels)},code="{code}"}} {count}'
        name = f"{_PREFIX}request_duration_seconds"
        yield f"# TYPE {name} histogram"
        for key, found in sorted(self._durations.items()):
            shown = _labels(key)
            for place, most in enumerate(_BUCKETS):
                yield f'{name}_bucket{{{shown},le="{most}"}} {found[place]:.0f}'
            yield f'{name}_bucket{{{shown},le="+Inf"}} {found[-2]:.0f}'
            yield f"{name}_count{{{shown}}} {found[-2]:.0f}"
            yield f"{name}_sum{{{shown}}} {found[-1]:.6f}"
        yield f"# TYPE {_PREFIX}current_inflight_requests gauge"
        for sort in ("mutating", "readOnly"):
            yield f'{_PREFIX}current_inflight_requests{{request_kind="{sort}"}} {self._limits.in_flight[sort]}'
        yield f"# TYPE {_PREFIX}longrunning_requests gauge"
        yield f'{_PREFIX}longrunning_requests{{verb="WATCH"}} {self._limits.watches.total()}'
        yield f"# TYPE {_PREFIX}request_terminations_total counter"
        for sort, count in sorted(self._limits.refused.items()):
            yield f'{_PREFIX}request_terminations_total{{request_kind="{sort}",code="429"}} {count}'
        if self._rates is not None:
            yield f"# TYPE {_PREFIX}event_rate_limit_refused_total counter"
            for sort, count in sorted(self._rates.refused.items()):
                yield f'{_PREFIX}event_rate_limit_refused_total{{type="{sort}"}} {count}'
            yield f"# TYPE {_PREFIX}event_rate_limit_unshared_total counter"
            yield f"{_PREFIX}event_rate_limit_unshared_total {self._rates.unshared}"


def _labels(labels: tuple[str, ...] | list[str]) -> str:
    return ",".join(f'{name}="{value}"' for name, value in zip(_LABELS, labels, strict=True))


__all__ = ["ASKED", "Telling"]
