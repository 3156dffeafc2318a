"""The rules of a Pod, for the API, for `eventbus apply` and for an agent's manifests.

Source: kubernetes `pkg/apis/core/validation/validation.go`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from eventbus.errors import InvalidObject
from eventbus.model.names import LABEL_RULE, is_dns_label, is_dns_subdomain, parse_quantity
from eventbus.model.objects.container import Container, Lifecycle, LifecycleHandler, Probe
from eventbus.model.objects.pod import STAYS, Pod, PodSpec
from eventbus.model.objects.volume import FILE_MODE_RULE
from eventbus.model.validation import FieldProblem, invalid_field, missing_field
from eventbus.util.text import quoted

_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")


def check_pod(pod: Pod) -> None:
    """Check all that an agent needs to run *pod*. Raises: InvalidObject: with every problem."""
    problems = [*_metadata_problems(pod), *spec_problems(pod.spec), *_agent_problems(pod.spec)]
    if problems:
        text = "; ".join(f"{problem.field}: {problem.text}" for problem in problems)
        raise InvalidObject(f'Pod "{pod.metadata.name}" is invalid: {text}')


def spec_problems(spec: PodSpec, former: PodSpec | None = None) -> Iterator[FieldProblem]:
    """Yield the problems of a spec, and of its change if it replaces *former*."""
    if former is not None and former.node_name not in ("", spec.node_name):
        yield FieldProblem("FieldValueForbidden", f"Forbidden: {STAYS}", "spec.nodeName")
    if not spec.containers:
        yield missing_field("spec.containers")
    names: set[str] = set()
    for where, container in _containers(spec):
        field, name = f"{where}.name", container.name
        if not name:
            yield missing_field(field)
        elif not is_dns_label(name):
            yield invalid_field(field, name, LABEL_RULE)
        elif name in names:
            yield FieldProblem("FieldValueDuplicate", f"Duplicate value: {quoted(name)}", field)
        names.add(name)
    if spec.restart_policy not in _RESTART_POLICIES:
        supported = ", ".join(map(quoted, _RESTART_POLICIES))
        problem = f"Unsupported value: {quoted(spec.restart_policy)}: supported values: {supported}"
        yield FieldProblem("FieldValueNotSupported", problem, "spec.restartPolicy")
    if former is None or former.volumes != spec.volumes:
        for place, volume in enumerate(spec.volumes):
            for field, mode in volume.bad_modes():
                yield invalid_field(f"spec.volumes[{place}].{field}", mode, FILE_MODE_RULE)


def _metadata_problems(pod: Pod) -> Iterator[FieldProblem]:
    metadata = pod.metadata
    if not is_dns_subdomain(metadata.name):
        yield invalid_field("metadata.name", metadata.name, "must be a lowercase RFC 1123 subdomain")
    if not is_dns_label(metadata.namespace):
        yield invalid_field("metadata.namespace", metadata.namespace, LABEL_RULE)


def _agent_problems(spec: PodSpec) -> Iterator[FieldProblem]:
    """Yield the problems that the API accepts in a stored pod, and that keep an agent from running it."""
    if (spec.termination_grace_period_seconds or 0) < 0:
        grace_s = spec.termination_grace_period_seconds
        yield invalid_field("spec.terminationGracePeriodSeconds", grace_s, "must be greater than or equal to 0")
    volumes = {volume.name for volume in spec.volumes}
    for where, container in _containers(spec):
        for mount in container.volume_mounts:
            if mount.name not in volumes:
                yield FieldProblem("FieldValueNotFound", f"Not found: {quoted(mount.name)}", f"{where}.volumeMounts")
        for field, handler in _handlers(container):
            if handler.exec is not None and not handler.exec.command:
                yield missing_field(f"{where}.{field}.exec.command")
        for kind in ("requests", "limits"):
            for resource, amount in getattr(container.resources, kind).items():
                if parse_quantity(amount) is None:
                    yield invalid_field(
                        f"{where}.resources.{kind}[{resource}]", amount, "must be a quantity, like 500m"
                    )


def _containers(spec: PodSpec) -> Iterator[tuple[str, Container]]:
    """Yield every container with the path of its field, in the order in which the API server checks them."""
    for field, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for place, container in enumerate(containers):
            yield f"spec.{field}[{place}]", container


def _handlers(container: Container) -> Iterator[tuple[str, Probe | LifecycleHandler]]:
    """Yield the probes and hooks of a container, each with its field."""
    lifecycle = container.lifecycle or Lifecycle()
    handlers = {
        "livenessProbe": container.liveness_probe,
        "readinessProbe": container.readiness_probe,
        "startupProbe": container.startup_probe,
        "lifecycle.postStart": lifecycle.post_start,
        "lifecycle.preStop": lifecycle.pre_stop,
    }
    yield from ((field, handler) for field, handler in handlers.items() if handler is not None)
