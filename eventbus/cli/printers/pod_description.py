"""Describes a Pod as kubectl does, up to its events: pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from eventbus.model.columns.events import DESCRIPTION
from eventbus.model.objects.container import Container, EnvVar, Probe
from eventbus.model.objects.pod import ContainerState, ContainerStatus, Pod
from eventbus.model.objects.volume import Volume
from eventbus.util.human_duration import local_time
from eventbus.util.table import format_table
from eventbus.util.text import printable

NONE: Final = "<none>"
#: A line: its label, its value; "" has none, and the lines below it are indented.
Line = tuple[int, str, str]


def pod_lines(pod: Pod) -> list[tuple[str, list[str]]]:
    """Return the lines at the top of the page, without name, namespace, labels and annotations."""
    status = pod.status
    started = [local_time(status.start_time)] if status.start_time is not None else []
    lines = [("Node", [f"{pod.spec.node_name}/{status.host_ip}" if pod.spec.node_name else NONE])]
    if started:
        lines.append(("Start Time", started))
    deleted = pod.metadata.deletion_timestamp is not None
    lines.append(("Status", ["Terminating" if deleted else status.phase]))
    lines += [(label, [value]) for label, value in (("Reason", status.reason), ("Message", status.message)) if value]
    return [*lines, ("IP", [status.pod_ip])]


def pod_sections(pod: Pod) -> str:
    """Return everything from the containers on. Source: kubectl `pkg/describe` describePod."""
    lines: list[Line] = []
    for title, containers, statuses in (
        ("Init Containers", pod.spec.init_containers, pod.status.init_container_statuses),
        ("Containers", pod.spec.containers, pod.status.container_statuses),
    ):
        if containers:
            lines.append((0, title, ""))
            by_name = {one.name: one for one in statuses}
            for container in containers:
                lines += _container(container, by_name.get(container.name))
    text = _format(lines)
    if pod.status.conditions:
        rows = [(one.type, one.status) for one in pod.status.conditions]
        ruled = [("----", "------"), *rows]
        text += "Conditions:\n" + format_table(("Type", "Status"), ruled, layout=DESCRIPTION)
    return text + _format(list(_rest(pod)))


def _container(container: Container, status: ContainerStatus | None) -> Iterator[Line]:
    yield 2, container.name, ""
    if status is not None:
        yield 4, "Container ID", status.container_id
    yield 4, "Image", container.image or NONE
    if status is not None:
        yield 4, "Image ID", status.image_id
    yield 4, "Port", ", ".join(f"{port.container_port}/{port.protocol}" for port in container.ports) or NONE
    yield 4, "Host Port", ", ".join(f"{port.host_port}/{port.protocol}" for port in container.ports) or NONE
    yield from _words("Command", container.command)
    yield from _words("Args", container.args)
    if status is not None:
        yield from _state("State", status.state)
        if status.last_state.terminated is not None:
            yield from _state("Last State", status.last_state)
        yield 4, "Ready", str(status.ready)
        yield 4, "Restart Count", str(status.restart_count)
    for title, amounts in (("Limits", container.resources.limits), ("Requests", container.resources.requests)):
        if amounts:
            yield 4, title, ""
            for name, amount in sorted(amounts.items()):
                yield 6, name, str(amount)
    probes = (
        ("Liveness", container.liveness_probe),
        ("Readiness", container.readiness_probe),
        ("Startup", container.startup_probe),
    )
    for title, probe in probes:
        if probe is not None:
            yield 4, title, _probe(probe)
    if container.env_from:
        yield 4, "Environment Variables from", ""
        for source in container.env_from:
            found = source.config_map_ref or source.secret_ref
            yield 6, found.name if found else NONE, "ConfigMap" if source.config_map_ref else "Secret"
    yield 4, "Environment", "" if container.env else NONE
    for variable in container.env:
        yield 6, variable.name, _variable(variable)
    yield 4, "Mounts", "" if container.volume_mounts else NONE
    for mount in container.volume_mounts:
        yield 6, f"{mount.mount_path} from {mount.name} ({'ro' if mount.read_only else 'rw'})", ""


def _words(title: str, words: Sequence[str]) -> Iterator[Line]:
    if words:
        yield 4, title, ""
        for word in words:
            yield 6, "", word


def _state(title: str, state: ContainerState) -> Iterator[Line]:
    if state.running is not None:
        yield 4, title, "Running"
        yield 6, "Started", _when(state.running.started_at)
    elif state.terminated is not None:
        ended = state.terminated
        yield 4, title, "Terminated"
        if ended.reason:
            yield 6, "Reason", ended.reason
        if ended.message:
            yield 6, "Message", ended.message
        yield 6, "Exit Code", str(ended.exit_code)
        if ended.signal:
            yield 6, "Signal", str(ended.signal)
        yield 6, "Started", _when(ended.started_at)
        yield 6, "Finished", _when(ended.finished_at)
    else:
        yield 4, title, "Waiting"
        if state.waiting is not None and state.waiting.reason:
            yield 6, "Reason", state.waiting.reason
        if state.waiting is not None and state.waiting.message:
            yield 6, "Message", state.waiting.message


def _probe(probe: Probe) -> str:
    if probe.exec is not None:
        action = f"exec [{' '.join(probe.exec.command)}]"
    elif probe.http_get is not None:
        http = probe.http_get
        action = f"http-get {(http.scheme or 'HTTP').lower()}://{http.host}:{http.port}{http.path or '/'}"
    elif probe.tcp_socket is not None:
        action = f"tcp-socket {probe.tcp_socket.host}:{probe.tcp_socket.port}"
    else:
        action = "unknown"
    paces = f"delay={probe.initial_delay_seconds}s timeout={probe.timeout_seconds}s period={probe.period_seconds}s"
    return f"{action} {paces} #success={probe.success_threshold} #failure={probe.failure_threshold}"


def _variable(variable: EnvVar) -> str:
    source = variable.value_from
    if source is None:
        return variable.value
    if source.config_map_key_ref is not None:
        key_ref, source_kind = source.config_map_key_ref, "config map"
    elif source.secret_key_ref is not None:
        key_ref, source_kind = source.secret_key_ref, "secret"
    else:
        path = source.field_ref.field_path if source.field_ref is not None else "a resource"
        return f"({path})"
    optional = str(bool(key_ref.optional)).lower()
    return f"<set to the key '{key_ref.key}' in {source_kind} '{key_ref.name}'>  Optional: {optional}"


def _rest(pod: Pod) -> Iterator[Line]:
    yield 0, "Volumes", "" if pod.spec.volumes else NONE
    for volume in pod.spec.volumes:
        yield 2, volume.name, ""
        for label, value in _volume(volume):
            yield 4, label, value
    yield 0, "QoS Class", pod.status.qos_class or "BestEffort"
    selectors = [f"{key}={value}" for key, value in sorted(pod.spec.node_selector.items())]
    yield 0, "Node-Selectors", ", ".join(selectors) or NONE


def _volume(volume: Volume) -> Iterator[tuple[str, str]]:
    if volume.host_path is not None:
        yield "Type", "HostPath (bare host directory volume)"
        yield "Path", volume.host_path.path
    elif volume.config_map is not None:
        yield "Type", "ConfigMap (a volume populated by a ConfigMap)"
        yield "Name", volume.config_map.name
        yield "Optional", str(bool(volume.config_map.optional)).lower()
    elif volume.secret is not None:
        yield "Type", "Secret (a volume populated by a Secret)"
        yield "SecretName", volume.secret.secret_name
        yield "Optional", str(bool(volume.secret.optional)).lower()
    else:
        yield "Type", volume.foreign or "EmptyDir (a temporary directory that shares a pod's lifetime)"


def _format(lines: Sequence[Line]) -> str:
    """Format lines, the values of one indentation in a column."""
    widths: dict[int, int] = {}
    for indent, label, value in lines:
        if label and value:
            widths[indent] = max(widths.get(indent, 0), len(printable(label)) + 3)
    text = ""
    for indent, label, value in lines:
        shown = f"{printable(label)}:" if label and not label.endswith(")") else printable(label)
        text += f"{' ' * indent}{shown:<{widths.get(indent, 0) if value else 0}}{printable(value)}".rstrip() + "\n"
    return text


def _when(moment: datetime | None) -> str:
    return local_time(moment) if moment is not None else "<unknown>"
