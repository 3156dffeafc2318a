"""Checks of pods what the agent could not run either, so that whoever creates one is told.

Source: kubernetes `pkg/apis/core/validation/validation.go`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from eventbus.api.metadata_rules import LABEL_RULE, invalid
from eventbus.api.status import Cause, quoted
from eventbus.names import is_dns_label
from eventbus.objects.pod import STAYS, PodSpec
from eventbus.objects.volume import FILE_MODE_RULE

_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")


def pod_causes(spec: PodSpec, former: PodSpec | None) -> Iterator[Cause]:
    """List what is wrong with what a pod is to run, and with the change of that."""
    if former is not None and former.node_name not in ("", spec.node_name):
        yield Cause("FieldValueForbidden", f"Forbidden: {STAYS}", "spec.nodeName")
    if not spec.containers:
        yield Cause("FieldValueRequired", "Required value", "spec.containers")
    names: set[str] = set()
    for field, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for place, container in enumerate(containers):
            where, name = f"spec.{field}[{place}].name", container.name
            if not name:
                yield Cause("FieldValueRequired", "Required value", where)
            elif not is_dns_label(name):
                yield invalid(where, name, LABEL_RULE)
            elif name in names:
                yield Cause("FieldValueDuplicate", f"Duplicate value: {quoted(name)}", where)
            names.add(name)
    if spec.restart_policy not in _RESTART_POLICIES:
        supported = ", ".join(map(quoted, _RESTART_POLICIES))
        problem = f"Unsupported value: {quoted(spec.restart_policy)}: supported values: {supported}"
        yield Cause("FieldValueNotSupported", problem, "spec.restartPolicy")
    if former is None or former.volumes != spec.volumes:
        for place, volume in enumerate(spec.volumes):
            for field, mode in volume.bad_modes():
                shown = quoted(mode) if isinstance(mode, str) else mode
                problem = f"Invalid value: {shown}: {FILE_MODE_RULE}"
                yield Cause("FieldValueInvalid", problem, f"spec.volumes[{place}].{field}")


__all__ = ["pod_causes"]
