"""Counts requests, with the API server's names and labels, for Prometheus."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from aiohttp import web

from eventbus.api import status
from eventbus.api.context import API, USER
from eventbus.api.histograms import Histogram
from eventbus.api.kube.resources import Resource
from eventbus.api.limits import EventRate, Limits, is_long

#: Seconds; those of apiserver_request_duration_seconds that say something here.
_SECONDS: Final = (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2, 3, 5, 10, 15, 30, 60)
#: Bytes; the API server's own of replies to reads, and of lines of watches.
_REPLIES: Final = tuple(10**power for power in range(3, 10))
_FRAMES: Final = tuple(1024 << power for power in range(8))
_PREFIX: Final = "eventbus_apiserver_"
_VERBS: Final = {"GET": "GET", "POST": "POST", "PUT": "PUT", "PATCH": "PATCH", "DELETE": "DELETE"}
#: Of replies to others the API server measures no sizes.
_READS: Final = ("GET", "LIST")
_LABELS: Final = ("verb", "group", "version", "resource", "scope")
#: Set by who knows what is asked for; of others these are empty.
ASKED: Final = web.RequestKey("asked", tuple[str, ...])
#: The labels of no request.
NOTHING: Final = ("",) * len(_LABELS)


class Metrics:
    """Counts requests. Lives in the loop."""

    def __init__(
        self,
        *,
        limits: Limits,
        event_rate: EventRate,
        tokens_refused: Mapping[str, int] | None,
    ) -> None:
        self._limits = limits
        self._event_rate = event_rate
        self._tokens_refused = tokens_refused  # by reason
        self._requests: Counter[tuple[str, ...]] = Counter()
        self._durations: defaultdict[tuple[str, ...], Histogram] = defaultdict(lambda: Histogram(_SECONDS))
        self._replies: defaultdict[tuple[str, ...], Histogram] = defaultdict(lambda: Histogram(_REPLIES))
        #: Answers that were cut off because their client read nothing; each connection counts them.
        self.aborted: Counter[tuple[str, ...]] = Counter()
        #: Of the lines that watches of a resource have been told; `Frames` notes them.
        self.frames: defaultdict[Resource, Histogram] = defaultdict(lambda: Histogram(_FRAMES))

    async def serve(self, request: web.Request) -> web.Response:
        """Prometheus text."""
        user = request[USER]
        if not request.app[API].access.allowed(user, "get", "metrics"):
            raise status.forbidden_path(user.name, request.path)
        text = "\n".join(self._lines()) + "\n"
        return web.Response(text=text, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    def note(self, request: web.Request, answer: web.StreamResponse | None, took_s: float) -> None:
        """Note a request by its answer, or that it had none."""
        code = answer.status if answer is not None else 0
        labels = labels_of(request)
        self._requests[*labels, str(code)] += 1
        if not is_long(request):
            self._durations[labels].note(took_s)
            if labels[0] in _READS and answer is not None:
                self._replies[labels].note(answer.content_length or 0)

    def _lines(self) -> Iterator[str]:
        yield f"# TYPE {_PREFIX}request_total counter"
        for (*key, code), count in sorted(self._requests.items()):
            yield f'{_PREFIX}request_total{{{_labels(key)},code="{code}"}} {count}'
        yield from _histograms("request_duration_seconds", {_labels(key): one for key, one in self._durations.items()})
        yield from _histograms("response_sizes", {_labels(key): one for key, one in self._replies.items()})
        frames = {_resource(key): one for key, one in self.frames.items()}
        yield f"# TYPE {_PREFIX}watch_events_total counter"
        for labels, one in sorted(frames.items()):
            yield f"{_PREFIX}watch_events_total{{{labels}}} {one.count}"
        yield from _histograms("watch_events_sizes", frames)
        yield f"# TYPE {_PREFIX}current_inflight_requests gauge"
        for sort in ("mutating", "readOnly"):
            yield f'{_PREFIX}current_inflight_requests{{request_kind="{sort}"}} {self._limits.in_flight[sort]}'
        yield f"# TYPE {_PREFIX}longrunning_requests gauge"
        yield f'{_PREFIX}longrunning_requests{{verb="WATCH"}} {self._limits.watches.total()}'
        yield f"# TYPE {_PREFIX}request_terminations_total counter"
        for sort, count in sorted(self._limits.refused.items()):
            yield f'{_PREFIX}request_terminations_total{{request_kind="{sort}",code="429"}} {count}'
        yield f"# TYPE {_PREFIX}request_aborts_total counter"
        for cut, count in sorted(self.aborted.items()):
            yield f"{_PREFIX}request_aborts_total{{{_labels(cut)}}} {count}"
        yield f"# TYPE {_PREFIX}event_rate_limit_refused_total counter"
        yield f'{_PREFIX}event_rate_limit_refused_total{{type="User"}} {self._event_rate.refused}'
        if self._tokens_refused is not None:
            yield f"# TYPE {_PREFIX}jwt_refused_total counter"
            for reason, count in sorted(self._tokens_refused.items()):
                yield f'{_PREFIX}jwt_refused_total{{reason="{reason}"}} {count}'


def labels_of(request: web.BaseRequest) -> tuple[str, ...]:
    """Return what *request* is counted by: verb, group, version, resource, scope."""
    return request.get(ASKED) or (_VERBS.get(request.method, "other"), *NOTHING[1:])


def _histograms(name: str, found: Mapping[str, Histogram]) -> Iterator[str]:
    """One metric by its labels."""
    yield f"# TYPE {_PREFIX}{name} histogram"
    for labels, one in sorted(found.items()):
        yield from one.lines(_PREFIX + name, labels)


def _resource(resource: Resource) -> str:
    return f'group="{resource.group}",version="{resource.version}",resource="{resource.plural}"'


def _labels(labels: tuple[str, ...] | list[str]) -> str:
    return ",".join(f'{name}="{value}"' for name, value in zip(_LABELS, labels, strict=True))
