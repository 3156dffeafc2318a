"""Reads manifests: YAML or JSON with Pods, made whole as the pods of this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final

import msgspec
import yaml

from eventbus.agent.pods.updates import CONFIG_HASH, CONFIG_SOURCE, Source
from eventbus.errors import InvalidObject
from eventbus.model.encoding.json_read import plain_loader
from eventbus.model.encoding.object_json import struct_from_json
from eventbus.model.names import MAX_SUBDOMAIN
from eventbus.model.objects.pod import Pod
from eventbus.model.objects.pod_rules import check_pod

#: The most bytes of a manifest; a longer manifest is refused.
MAX_BYTES: Final = 4 * 1024 * 1024
DEFAULT_NAMESPACE: Final = "default"


def read_documents(data: bytes, where: str) -> Iterator[Mapping[str, Any]]:
    """Yield every object of a YAML or JSON text; those of a List one by one.

    Raises: InvalidObject: it cannot be read; the message begins with *where*.
    """
    if len(data) > MAX_BYTES:
        raise InvalidObject(f"{where}: longer than {MAX_BYTES} bytes")
    try:
        for document in yaml.load_all(data.decode(), Loader=plain_loader()):  # noqa: TID251 - it makes plain values only
            if document is not None:
                yield from _objects(document, where)
    except (yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        problem = str(error).replace("\n", " ")
        raise InvalidObject(f"{where}: {problem[:300]}") from None


def read_pods(data: bytes, where: str, *, node: str, source: Source) -> list[Pod]:
    """Return the pods of a manifest, as pods of *node*. Raises: InvalidObject."""
    pods = []
    for document in read_documents(data, where):
        if document.get("kind") != Pod.kind:
            raise InvalidObject(f"{where}: kind: must be Pod, is {ascii(document.get('kind'))[:80]}")
        try:
            pod = struct_from_json(document, Pod, kind=Pod.kind, api_version=Pod.api_version)
            pods.append(static_pod(pod, node=node, source=source, where=where))
        except InvalidObject as error:
            raise InvalidObject(f"{where}: {error}") from None
    return pods


def static_pod(pod: Pod, *, node: str, source: Source, where: str) -> Pod:
    """Return *pod* as a static pod of *node*: uid and hash by its content, a name that ends with the node's.

    The same content at the same place is the same pod; other content is a new pod, which replaces it.

    Raises: InvalidObject: it breaks a rule of pods.
    Source: kubelet `config/common.go` applyDefaults.
    """
    metadata = pod.metadata
    content = json.dumps(msgspec.to_builtins([metadata, pod.spec], str_keys=True), sort_keys=True, default=str)
    digest = blake2b(f"{node}\0{source}\0{where}\0{content}".encode(), digest_size=16).hexdigest()
    annotations = {**metadata.annotations, CONFIG_SOURCE: str(source), CONFIG_HASH: digest}
    own_metadata = msgspec.structs.replace(
        metadata,
        name=f"{metadata.name}-{node}" if metadata.name else "",
        namespace=metadata.namespace or DEFAULT_NAMESPACE,
        uid=metadata.uid or digest,
        annotations=annotations,
        resource_version="",
        deletion_timestamp=None,
    )
    if len(own_metadata.name) > MAX_SUBDOMAIN:
        raise InvalidObject(f"metadata.name: {own_metadata.name!r} is longer than {MAX_SUBDOMAIN} characters")
    whole = Pod(metadata=own_metadata, spec=msgspec.structs.replace(pod.spec, node_name=node))
    check_pod(whole)
    return whole


def _objects(document: Any, where: str) -> Iterator[Mapping[str, Any]]:
    if not isinstance(document, Mapping):
        raise InvalidObject(f"{where}: must be an object, is {type(document).__name__}")
    if str(document.get("kind", "")).endswith("List") and isinstance(document.get("items"), list):
        for item in document["items"]:
            yield from _objects(item, where)
    else:
        yield document
