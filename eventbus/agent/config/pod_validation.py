"""The rules of a Pod that the agent runs, worded as the API server words them."""

from __future__ import annotations

from collections.abc import Iterator

from eventbus.errors import InvalidObject
from eventbus.names import is_dns_label, is_dns_subdomain
from eventbus.objects.container import Container, Lifecycle, LifecycleHandler, Probe
from eventbus.objects.pod import Pod
from eventbus.objects.volume import FILE_MODE_RULE
from eventbus.quantity import parse_quantity

RESTART_POLICIES = ("Always", "OnFailure", "Never")


def check_pod(pod: Pod) -> None:
    """Check *pod*. Raises: InvalidObject: with every problem that it has."""
    if problems := list(_problems(pod)):
        raise InvalidObject(f'Pod "{pod.metadata.name}" is invalid: {"; ".join(problems)}')


def _problems(pod: Pod) -> Iterator[str]:
    metadata, spec = pod.metadata, pod.spec
    if not is_dns_subdomain(metadata.name):
        yield f"metadata.name: Invalid value: {metadata.name!r}: must be a lowercase RFC 1123 subdomain"
    if not is_dns_label(metadata.namespace):
        yield f"metadata.namespace: Invalid value: {metadata.namespace!r}: must be a lowercase RFC 1123 label"
    if spec.restart_policy not in RESTART_POLICIES:
        supported = ", ".join(RESTART_POLICIES)
        yield f"spec.restartPolicy: Unsupported value: {spec.restart_policy!r}: supported values: {supported}"
    if (spec.termination_grace_period_seconds or 0) < 0:
        yield "spec.terminationGracePeriodSeconds: Invalid value: must be greater than or equal to 0"
    if not spec.containers:
        yield "spec.containers: Required value"
    for place, volume in enumerate(spec.volumes):
        for field, mode in volume.bad_modes():
            yield f"spec.volumes[{place}].{field}: Invalid value: {mode!r}: {FILE_MODE_RULE}"
    names: set[str] = set()
    volumes = {volume.name for volume in spec.volumes}
    for field, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for place, container in enumerate(containers):
            where = f"spec.{field}[{place}]"
            if not is_dns_label(container.name):
                yield f"{where}.name: Invalid value: {container.name!r}: must be a lowercase RFC 1123 label"
            if container.name in names:
                yield f"{where}.name: Duplicate value: {container.name!r}"
            names.add(container.name)
            for mount in container.volume_mounts:
                if mount.name not in volumes:
                    yield f"{where}.volumeMounts: Not found: {mount.name!r}"
            for what, handler in _handlers(container):
                if handler.exec is not None and not handler.exec.command:
                    yield f"{where}.{what}.exec.command: Required value"
            for kind in ("requests", "limits"):
                for resource, amount in getattr(container.resources, kind).items():
                    if parse_quantity(amount) is None:
                        yield f"{where}.resources.{kind}[{resource}]: Invalid value: {amount!r}"


def _handlers(container: Container) -> Iterator[tuple[str, Probe | LifecycleHandler]]:
    """What is asked of or told to a container, each with its field."""
    lifecycle = container.lifecycle or Lifecycle()
    found = {
        "livenessProbe": container.liveness_probe,
        "readinessProbe": container.readiness_probe,
        "startupProbe": container.startup_probe,
        "lifecycle.postStart": lifecycle.post_start,
        "lifecycle.preStop": lifecycle.pre_stop,
    }
    yield from ((field, handler) for field, handler in found.items() if handler is not None)


__all__ = ["RESTART_POLICIES", "check_pod"]
