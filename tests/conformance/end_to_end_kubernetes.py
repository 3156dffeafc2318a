"""The same vectors through the Kubernetes sink and HTTP: the answers are an API server's, and so are the errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eventbus.export.sinks import make_sink
from eventbus.model.encoding.event_json import from_core, to_events_v1
from tests.conformance.end_to_end import OwnTime, Vector, drive
from tests.support.api_server import ApiServer, Fault, Request, serving
from tests.support.kubeconfig import write_kubeconfig

#: Vectors of both recorders that the sink answers otherwise, or that no server can make happen, and why.
NOT_KUBERNETES = {
    "create_exists": "the sink reads what is there, so that the higher count stays",
    "create_409": "the same: of a create a 409 says that it exists",
    "patch_409": "the sink reads the newer version and patches that",
    "patch_notfound": "the event is there after all, so that the sink reads and patches it",
    "patch_notfound_exists": "the same",
    "create_construct": "a request that cannot be built is a matter of the client",
    "patch_construct": "the same",
}
#: What the server says in HTTP is seen in what follows from it.
UNSEEN = ("answer",)

_FAULTS = {
    "http": Fault(),
    "terminating": Fault(403, "Forbidden", causes=("NamespaceTerminating",)),
    "forbidden": Fault(403, "Forbidden"),
    "500": Fault(500, "InternalError"),
    "429": Fault(429, "TooManyRequests", headers={"Retry-After": "1"}),
    "503": Fault(503, "ServiceUnavailable", headers={"Retry-After": "1"}),
    "504": Fault(504, "Timeout"),
    "410": Fault(410, "Expired"),
    "notfound": Fault(404, "NotFound"),
    "unexpected": Fault(200, body=b'{"kind":"Status","metadata":{}}'),
}
_FOREVER = 1_000


class TimedServer(ApiServer):
    """Notes every request as the vectors note a call."""

    def __init__(self, time: OwnTime) -> None:
        super().__init__(namespaces=("default", "other"))
        self._time = time
        self._version = 0
        self.calls: list[dict[str, Any]] = []

    def came(self, request: Request) -> None:
        super().came(request)
        _, _, _, _, namespace, _, *name = request.path.split("/")
        body = dict(request.body or {})
        metadata = dict(body.pop("metadata", {}))
        call = {"t_ms": round(self._time.now_s * 1000), "ns": namespace}
        call |= {key: body[key] for key in ("count", "message") if key in body}
        call |= {"count": body["series"]["count"]} if "series" in body else {}
        if request.method == "POST":
            del body["kind"], body["apiVersion"]
            marks = metadata.pop("annotations", {})
            annotations = {key: value for key, value in marks.items() if not key.startswith("eventbus/")}
            body["metadata"] = metadata | ({"annotations": annotations} if annotations else {})
            if body["eventTime"]:
                body = to_events_v1(from_core(body))
                del body["kind"], body["apiVersion"]
            call |= {"verb": "create", "name": metadata["name"], "event": body}
        elif request.method == "GET":
            # Of what it has no version of, the sink looks first whether it is there: if not, it goes on as after a
            # patch that finds nothing.
            call |= {"verb": "patch", "name": name[0], "unseen": ("rv", "count", "message", "patch")}
        else:
            version = metadata.get("resourceVersion", "")
            call |= {"verb": request.method.lower(), "name": name[0], "patch": body}
            call |= {"unseen": ("message",)} if "series" in body else {}
            call |= {"rv": version} if version else {}
        self.calls.append(call)


def applies(vector: Vector) -> bool:
    """Return True if the sink behaves as client-go did."""
    return subject_of(vector) not in NOT_KUBERNETES


def subject_of(vector: Vector) -> str:
    """Return its name without number and recorder."""
    return vector.name.split("_", 2)[2]


def run(vector: Vector, url: str, folder: Path) -> tuple[list[dict[str, Any]], int]:
    """The requests of the sink, and how many events were buried."""
    time = OwnTime()
    api = TimedServer(time)
    for fault in vector.options.get("faults") or ():
        name = fault.removeprefix("*")
        api.faults.extend([None if name == "ok" else _FAULTS[name]] * (_FOREVER if name != fault else 1))
    with serving(api) as server_url:
        sink = make_sink(f"kubernetes:{write_kubeconfig(folder / 'config', server_url)}", {}, name="vectors")
        return api.calls, drive(vector, url, sink, time, delete=api.objects.clear)
