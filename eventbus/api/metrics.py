"""Counts requests, with the API server's names and labels, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Histogram, Info, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from eventbus.api import status
from eventbus.api.context import API, COMPONENT, USER
from eventbus.api.kube.resources import Resource
from eventbus.api.limits import EventRate, Limits, is_long
from eventbus.broker.build import package_version

#: Bounds in seconds: those of apiserver_request_duration_seconds that can occur here.
_SECONDS: Final = (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2, 3, 5, 10, 15, 30, 60)
#: Bounds in bytes, as in the API server: of responses to reads, and of lines of watches.
_RESPONSES: Final = tuple(10**power for power in range(3, 10))
_LINES: Final = tuple(1024 << power for power in range(8))
_PREFIX: Final = "eventbus_apiserver_"
_METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
#: The API server measures sizes of responses to these verbs only.
_READS: Final = ("GET", "LIST")
_RESOURCE: Final = ("group", "version", "resource")


class Labels(NamedTuple):
    """The labels of a request. Paths that are no resource have only a verb."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    scope: str = ""


#: Labels of a connection without a readable request.
UNKNOWN: Final = Labels("")
#: The labels of requests for resources; see `count_as`.
LABELS: Final = web.RequestKey("labels", Labels)


class Metrics(Collector):
    """The metrics of a worker, and the numbers that its other parts keep. Lives in the loop."""

    def __init__(
        self,
        *,
        limits: Limits,
        event_rate: EventRate,
        tokens_refused: Mapping[str, int] | None,
        files_invalid: Callable[[], int],
    ) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a time for each series: as many lines again
        self._limits = limits
        self._event_rate = event_rate
        self._tokens_refused = tokens_refused
        self._files_invalid = files_invalid
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._requests = self._counter("request", "Requests by their response.", (*Labels._fields, "code"))
        self._aborts = self._counter("request_aborts", "Connections of clients that read nothing.", Labels._fields)
        self._durations = self._histogram(
            "request_duration_seconds", "Durations of requests.", Labels._fields, _SECONDS
        )
        self._responses = self._histogram("response_sizes", "Bytes of responses to reads.", Labels._fields, _RESPONSES)
        self._lines = self._histogram(
            "watch_events_sizes",
            "Bytes of lines, counted once for all watches.",
            _RESOURCE,
            _LINES,
        )
        self._events = self._counter("watch_events", "Lines written to watches.", _RESOURCE)
        self._log_records = self._counter("otlp_log_records", "Log records of OTLP by their result.", ("result",))
        self._alerts = self._counter("alertmanager_alerts", "Alerts of Alertmanager by their result.", ("result",))
        build = Info("eventbus_build", "The version of eventbus.", registry=self._registry)
        build.info({"version": package_version()})

    async def serve(self, request: web.Request) -> web.Response:
        """Answer with all metrics, in the format that Prometheus asks for."""
        user = request[USER]
        if not request.app[API].access.allowed(user, "get", "metrics"):
            raise status.forbidden_path(user.name, request.path)
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._registry), headers={"Content-Type": content_type})

    def note(self, request: web.Request, answer: web.StreamResponse | None, took_s: float) -> None:
        """Count a request by its response; code 0: it had none."""
        labels = labels_of(request)
        self._requests.labels(*labels, answer.status if answer is not None else 0).inc()
        if not is_long(request):
            self._durations.labels(*labels).observe(took_s)
            if labels.verb in _READS and answer is not None:
                self._responses.labels(*labels).observe(answer.content_length or 0)

    def note_abort(self, labels: Labels) -> None:
        """Count a connection that is aborted because its client reads nothing."""
        self._aborts.labels(*labels).inc()

    def note_watch_line(self, resource: Resource, size: int) -> None:
        """Count an encoded line of watches by its bytes."""
        self._lines.labels(resource.group, resource.version, resource.plural).observe(size)

    def note_watch_lines(self, resource: Resource, lines: int) -> None:
        """Count *lines* that are written to watches of *resource*."""
        self._events.labels(resource.group, resource.version, resource.plural).inc(lines)

    def note_log_records(self, results: Mapping[str, int]) -> None:
        """Count log records of OTLP by their result."""
        for result, records in results.items():
            self._log_records.labels(result).inc(records)

    def note_alerts(self, results: Mapping[str, int]) -> None:
        """Count alerts of Alertmanager by their result."""
        for result, alerts in results.items():
            self._alerts.labels(result).inc(alerts)

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> Counter:
        return Counter(_PREFIX + name, text, labels, registry=self._registry)

    def _histogram(self, name: str, text: str, labels: tuple[str, ...], bounds: tuple[float, ...]) -> Histogram:
        return Histogram(_PREFIX + name, text, labels, buckets=bounds, registry=self._registry)

    def collect(self) -> Iterator[Metric]:
        """See `Collector`. Make the metrics of limits, of signed tokens, and of configuration files."""
        kinds = ("mutating", "readOnly")
        in_flight = GaugeMetricFamily(
            _PREFIX + "current_inflight_requests", "Requests in progress, without watches.", labels=["request_kind"]
        )
        for kind in kinds:
            in_flight.add_metric([kind], self._limits.in_flight[kind])
        yield in_flight
        watches = GaugeMetricFamily(_PREFIX + "longrunning_requests", "Open watches.", labels=["verb"])
        watches.add_metric(["WATCH"], self._limits.watches)
        yield watches
        refused = CounterMetricFamily(
            _PREFIX + "request_terminations", "Requests beyond a limit of the worker.", labels=["request_kind", "code"]
        )
        for kind, count in sorted(self._limits.refused.items()):
            refused.add_metric([kind, "429"], count)
        yield refused
        rate = CounterMetricFamily(
            _PREFIX + "event_rate_limit_refused", "Requests beyond a user's rate of events.", labels=["type"]
        )
        rate.add_metric(["User"], self._event_rate.refused)
        yield rate
        if self._tokens_refused is not None:
            tokens = CounterMetricFamily(_PREFIX + "jwt_refused", "Signed tokens refused.", labels=["reason"])
            for reason, count in sorted(self._tokens_refused.items()):
                tokens.add_metric([reason], count)
            yield tokens
        files = GaugeMetricFamily(
            "eventbus_worker_files_invalid",
            "Configuration files with an error: the previous content stays in use.",
            labels=["component"],
        )
        files.add_metric([COMPONENT], self._files_invalid())
        yield files


def labels_of(request: web.BaseRequest) -> Labels:
    """Return the labels of *request*; before `count_as`, only its verb is known."""
    found: Labels | None = request.get(LABELS)
    return found or Labels(request.method if request.method in _METHODS else "other")
