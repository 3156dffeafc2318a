"""The QoS class of a pod, by its requests and limits. Source: `pkg/apis/core/v1/helper/qos/qos.go`."""

from __future__ import annotations

from typing import Final

from eventbus.model.names import parse_quantity
from eventbus.model.objects.pod import Pod

GUARANTEED, BURSTABLE, BEST_EFFORT = "Guaranteed", "Burstable", "BestEffort"
_COUNTED: Final = ("cpu", "memory")


def qos_class(pod: Pod) -> str:
    """Guaranteed: every container has limits of cpu and memory, which are its requests; BestEffort: none has any."""
    containers = pod.spec.every_container
    guaranteed, any_said = bool(containers), False
    for container in containers:
        limits, requests = container.resources.limits, container.resources.requests
        for name in _COUNTED:
            limit = parse_quantity(limits.get(name, 0)) or 0.0
            request = parse_quantity(requests[name]) if name in requests else limit
            any_said = any_said or limit > 0 or (request or 0.0) > 0
            guaranteed = guaranteed and limit > 0 and request == limit
    if not any_said:
        return BEST_EFFORT
    return GUARANTEED if guaranteed else BURSTABLE
