"""Decides once, before a pod is started, whether it may run on this machine with the pods that already do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from eventbus.agent.pods.permission import Permission, Refusal
from eventbus.model.names import parse_quantity
from eventbus.model.objects.container import Container
from eventbus.model.objects.pod import Pod

#: The resources of a node → the unit of their numbers in messages.
_UNITS: Final = {"cpu": 1000.0, "memory": 1.0, "ephemeral-storage": 1.0}


class NodeCapacity(NamedTuple):
    """The capacity of a node for pods.

    *allocatable*: quantities by resource.  *labels*: the labels that a nodeSelector may name.
    """

    allocatable: Mapping[str, str]
    labels: Mapping[str, str]


#: The capacity of a node that limits no pod.
UNLIMITED: Final = NodeCapacity({}, {})


def refusal(pod: Pod, others: Sequence[Pod], node: NodeCapacity, permission: Permission) -> Refusal | None:
    """Return why *pod* may not run on *node* in addition to *others*; None: it may.

    Source: kubelet `lifecycle/predicate.go`; reasons of ports and labels are those of the kubelet before 1.20.
    """
    return (
        _resources(pod, others, node)
        or _node_selector(pod, node)
        or _host_ports(pod, others)
        or permission.problem(pod)
    )


def requests_of(pod: Pod, resource: str) -> float:
    """Return the request of *pod*: the sum of its containers, or the largest of its init containers.

    A limit without a request counts as one, as the API server's defaults have it.
    """
    main = sum(_request(container, resource) for container in pod.spec.containers)
    return max([main, *(_request(container, resource) for container in pod.spec.init_containers)])


def _request(container: Container, resource: str) -> float:
    resources = container.resources
    text = resources.requests.get(resource, resources.limits.get(resource))
    return (parse_quantity(text) or 0.0) if text is not None else 0.0


def _resources(pod: Pod, others: Sequence[Pod], node: NodeCapacity) -> Refusal | None:
    most = parse_quantity(node.allocatable.get("pods", ""))
    if most is not None and len(others) + 1 > most:
        return _out_of("pods", 1, len(others), most)
    for resource, unit in _UNITS.items():
        request = requests_of(pod, resource)
        has = parse_quantity(node.allocatable.get(resource, ""))
        if not request or has is None:
            continue
        used = sum(requests_of(other, resource) for other in others)
        if used + request > has:
            return _out_of(resource, request * unit, used * unit, has * unit)
    return None


def _out_of(resource: str, request: float, used: float, has: float) -> Refusal:
    amounts = f"requested: {request:.0f}, used: {used:.0f}, capacity: {has:.0f}"
    return Refusal(f"OutOf{resource}", f"Node didn't have enough resource: {resource}, {amounts}")


def _node_selector(pod: Pod, node: NodeCapacity) -> Refusal | None:
    selector = pod.spec.node_selector
    if all(node.labels.get(key) == value for key, value in selector.items()):
        return None
    return Refusal("NodeSelectorMismatching", "Pod cannot be started due to node selector mismatch")


def _host_ports(pod: Pod, others: Sequence[Pod]) -> Refusal | None:
    holders = {port: other for other in others for port in _ports(other)}
    for port in _ports(pod):
        if port in holders:
            holder = holders[port].metadata
            message = f"Pod cannot be started due to host port conflict: {port[1]}/{port[0]} is {holder.name}'s"
            return Refusal("HostPortConflict", message)
    return None


def _ports(pod: Pod) -> Iterator[tuple[str, int]]:
    """Yield protocol and number of each port. With the network of the host, all ports are host ports."""
    for container in pod.spec.containers:
        for port in container.ports:
            number = port.host_port or (port.container_port if pod.spec.host_network else 0)
            if number:
                yield port.protocol or "TCP", number
