"""A small fleet in which something has just gone wrong: stored events, and the node they come from."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from eventbus.model.event import Event, EventSource, ObjectMeta, ObjectReference
from eventbus.model.kinds import EVENT, NODE
from eventbus.model.objects.cluster import Node, NodeCondition, NodeStatus
from eventbus.store.object_store import ObjectStore

HOST = "node-1"
POD = ObjectReference("Pod", "shop", "web-7f-a", "uid-web-7f-a", "v1")
#: What an attacker's or a careless program's event may hold.
NASTY = (
    "<img src=x onerror=alert(1)><script>alert(2)</script> javascript:alert(3) "
    "\x1b[31mred\x1b[0m \u202etxt.exe\u202c https://example.org/x?a=1&b=<b> \u2066x\u2069"
)


def make_fleet(store: ObjectStore, now: datetime) -> list[Event]:
    """Store it; the newest has happened *now*. Returns: all events, the one that began first first."""

    def ago(**units: int) -> datetime:
        return now - timedelta(**units)

    events = [
        make_one("Package/default/libc", "Installed", "installed libc 2.36", ago(minutes=25), component="packages"),
        make_one("Deployment/shop/web", "ScalingReplicaSet", "Scaled up web-7f to 1", ago(minutes=14)),
        make_one("ReplicaSet/shop/web-7f", "SuccessfulCreate", "Created pod: web-7f-a", ago(minutes=13)),
        make_one("Pod/shop/web-7f-a", "Started", "Started web", ago(minutes=12), ago(seconds=20), 41),
        make_one(
            "Package/default/nginx", "Upgraded", "nginx 1.24 to 1.26", ago(minutes=11, seconds=10), component="packages"
        ),
        _warning(f"Node//{HOST}", "NodeHasDiskPressure", "disk is full", ago(minutes=10, seconds=30)),
        _warning("Pod/shop/web-7f-a", "Failed", "exit code 1: no /etc/web.conf", ago(minutes=10), ago(seconds=5), 41),
        _warning("Pod/other/db-0", "Failed", "exit code 2", ago(minutes=9, seconds=40), host="node-2"),
        _warning("Pod/other/far-0", "Unhealthy", "elsewhere", ago(minutes=9, seconds=30), host="node-2"),
        make_one("Job/shop/backup", "Completed", "42 GiB", ago(minutes=3), host="node-2"),
        _warning("Pod/shop/nasty", "Odd", NASTY, ago(minutes=2), host="node-2"),
    ]
    for event in events:
        store.objects(EVENT).create(event)
    conditions = (
        NodeCondition(type="Ready", status="True", last_heartbeat_time=now, last_transition_time=now),
        NodeCondition(type="DiskPressure", status="True", reason="Full", last_transition_time=ago(minutes=10)),
    )
    node = Node(metadata=ObjectMeta(name=HOST), status=NodeStatus(conditions=conditions))
    store.objects(NODE).create(node)
    return events


def _warning(about: str, *rest: Any, **more: Any) -> Event:
    return msgspec.structs.replace(make_one(about, *rest, **more), type="Warning")


def make_one(
    about: str,
    reason: str,
    message: str,
    first: datetime,
    last: datetime | None = None,
    count: int = 1,
    *,
    component: str = "kubelet",
    host: str = HOST,
) -> Event:
    """Make a Normal event about KIND/NAMESPACE/NAME, as others write them."""
    kind, namespace, name = about.split("/")
    labels = {"app": name.split("-")[0]}
    return Event(
        metadata=ObjectMeta(generate_name=f"{name}.", namespace=namespace or "default", labels=labels),
        involved_object=ObjectReference(kind, namespace, name, f"uid-{name}", "v1"),
        reason=reason,
        message=message,
        source=EventSource(component, host),
        first_timestamp=first,
        last_timestamp=last or first,
        count=count,
        type="Normal",
        reporting_component=component,
    )
