"""Pods for the tests of the agent's parts."""

from __future__ import annotations

from typing import Any

from eventbus.agent.pods.updates import CONFIG_HASH, CONFIG_SOURCE
from eventbus.model.event import ObjectMeta
from eventbus.model.objects.container import Container, ContainerPort, ResourceRequirements
from eventbus.model.objects.pod import Pod, PodSpec


def a_pod(
    name: str = "web",
    *,
    uid: str = "",
    source: str = "",
    cpu: str = "",
    memory: str = "",
    port: int = 0,
    command: tuple[str, ...] = ("/bin/sleep", "1"),
    **spec: Any,
) -> Pod:
    """Make a pod of one container; *source* makes it a static one."""
    requests = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value}
    container = Container(
        name="main",
        command=command,
        resources=ResourceRequirements(requests=requests),
        ports=(ContainerPort(host_port=port, container_port=port),) if port else (),
    )
    annotations = {CONFIG_SOURCE: source, CONFIG_HASH: uid or f"uid-{name}"} if source else {}
    metadata = ObjectMeta(name=name, namespace="default", uid=uid or f"uid-{name}", annotations=annotations)
    return Pod(metadata=metadata, spec=PodSpec(**({"containers": (container,)} | spec)))
