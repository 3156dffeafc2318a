"""Hashes that show whether a container or sandbox has changed since it was started."""

from __future__ import annotations

from hashlib import sha256

import msgspec

from eventbus.model.objects.container import Container
from eventbus.model.objects.pod import Pod


def container_hash(container: Container) -> str:
    """The hash of all that a container is started from. Hex, 16 digits.

    Source: kubelet `HashContainer`. Departure: there only name and image count since 1.31; here a change of anything
    in a manifest restarts the process, as its author would expect.
    """
    return _hash(msgspec.json.encode(container, order="deterministic"))


def sandbox_hash(pod: Pod) -> str:
    """Return the hash of the fields that all containers of a pod share. Hex, 16 digits."""
    spec = pod.spec
    shared = (spec.security_context, spec.volumes, spec.host_network, spec.hostname)
    return _hash(msgspec.json.encode(shared, order="deterministic"))


def _hash(data: bytes) -> str:
    return sha256(data).hexdigest()[:16]
