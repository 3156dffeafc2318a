"""lightkube: lists, writes, and watches; its own watch goes on by itself where *on_error* says so."""

from __future__ import annotations

import sys

from lightkube import Client, KubeConfig
from lightkube.models.core_v1 import ObjectReference
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Event
from lightkube.types import OnErrorAction, OnErrorResult
from telling import NAMESPACE, new_event, tell

CONFIG = {
    "clusters": [{"name": "bus", "cluster": {"server": sys.argv[1]}}],
    "users": [{"name": "nobody", "user": {}}],
    "contexts": [{"name": "bus", "context": {"cluster": "bus", "user": "nobody"}}],
    "current-context": "bus",
}
client = Client(config=KubeConfig.from_dict(CONFIG), namespace=NAMESPACE)


def go_on(error: Exception, _times: int) -> OnErrorResult:
    tell(cut=type(error).__name__)
    return OnErrorResult(OnErrorAction.RETRY, sleep=0.1)


def main() -> None:
    found = client.list(Event)
    tell(listed=[event.metadata.name for event in found])
    plain = new_event("by-lightkube")
    made = client.create(
        Event(
            metadata=ObjectMeta(**plain["metadata"]),
            involvedObject=ObjectReference(**plain["involvedObject"]),
            reason=plain["reason"],
            type=plain["type"],
            count=1,
        )
    )
    patched = client.patch(Event, made.metadata.name, {"count": 2})
    tell(wrote=patched.metadata.name, count=patched.count)
    for kind, event in client.watch(Event, resource_version=found.resourceVersion, on_error=go_on):
        tell(type=kind, name=event.metadata.name)


main()
