"""The environment of a container: its variables, from where they come, and `$(NAME)` in them."""

from __future__ import annotations

import binascii
import math
import os
import re
from base64 import b64decode
from collections.abc import Mapping
from typing import Final

from eventbus.agent.runtime.contract import ConfigSource, RuntimeProblem
from eventbus.model.names import parse_quantity
from eventbus.model.objects.config import ConfigMap, Secret
from eventbus.model.objects.container import Container, EnvFrom, EnvVar, EnvVarSource, KeySelector
from eventbus.model.objects.pod import Pod

#: The variables of the agent that a process inherits; others may hold credentials of the bus.
INHERITED: Final = ("PATH", "LANG", "LC_ALL", "TZ", "HOME", "USER", "LOGNAME", "TMPDIR")
_DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_REFERENCE: Final = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")
_KEYED: Final = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class ConfigMissing(RuntimeProblem):
    """A ConfigMap, Secret or key that a container needs is not there (yet): CreateContainerConfigError."""


class EnvironmentMaker:
    """Makes environments. *facts*: values of fields that no Pod holds, as `status.hostIP`. Any thread."""

    def __init__(self, configs: ConfigSource, facts: Mapping[str, str]) -> None:
        self._configs = configs
        self._facts = facts

    def make(self, pod: Pod, container: Container, own: Mapping[str, str]) -> dict[str, str]:
        """The whole environment of a container. Raises: ConfigMissing.

        Later variables replace earlier ones: inherited, *own* (of the runtime), `envFrom`, `env`.
        """
        environment = {"PATH": _DEFAULT_PATH} | {name: os.environ[name] for name in INHERITED if name in os.environ}
        environment |= own
        for source in container.env_from:
            environment |= self._all_of(pod, source)
        for variable in container.env:
            value = self._value(pod, container, variable, environment)
            if value is not None:
                environment[variable.name] = value
        return environment

    def _value(self, pod: Pod, container: Container, variable: EnvVar, so_far: Mapping[str, str]) -> str | None:
        if variable.value_from is None:
            return expand(variable.value, so_far)
        return self._from(pod, container, variable.value_from)

    def _from(self, pod: Pod, container: Container, source: EnvVarSource) -> str | None:
        namespace = pod.metadata.namespace
        if selector := source.config_map_key_ref:
            return _key_of(
                selector, "configmap", namespace, _texts_of(self._configs.config_map(namespace, selector.name))
            )
        if selector := source.secret_key_ref:
            return _key_of(selector, "secret", namespace, _texts_of(self._configs.secret(namespace, selector.name)))
        if source.field_ref is not None:
            return self.field(pod, source.field_ref.field_path)
        if source.resource_field_ref is not None:
            reference = source.resource_field_ref
            return _resource(container, reference.resource, reference.divisor)
        return ""

    def _all_of(self, pod: Pod, source: EnvFrom) -> dict[str, str]:
        namespace, values = pod.metadata.namespace, None
        if selector := source.config_map_ref:
            values = _texts_of(self._configs.config_map(namespace, selector.name))
        elif selector := source.secret_ref:
            values = _texts_of(self._configs.secret(namespace, selector.name))
        if values is None and selector is not None and not selector.optional:
            word = "configmap" if source.config_map_ref else "secret"
            raise ConfigMissing(f'{word} "{selector.name}" not found')
        return {source.prefix + key: value for key, value in (values or {}).items()}

    def field(self, pod: Pod, path: str) -> str:
        """The value of a field of the pod, as `fieldRef` names it. Raises: ConfigMissing: there is no such field."""
        metadata = pod.metadata
        known = {
            "metadata.name": metadata.name,
            "metadata.namespace": metadata.namespace,
            "metadata.uid": metadata.uid,
            "spec.nodeName": pod.spec.node_name,
            "spec.serviceAccountName": pod.spec.service_account_name,
            "status.podIP": pod.status.pod_ip,
            "status.hostIP": pod.status.host_ip,
        }
        if path in known:
            return known[path] or self._facts.get(path, "")
        if keyed := _KEYED.fullmatch(path):
            return str(getattr(metadata, keyed[1]).get(keyed[2], ""))
        raise ConfigMissing(f"fieldRef: there is no field {path!r}")


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by its value; a name without a value stays as it is, and `$$` is a dollar sign."""

    def put(match: re.Match[str]) -> str:
        return "$" if match[1] is None else values.get(match[1], match[0])

    return _REFERENCE.sub(put, text)


def _texts_of(config: ConfigMap | Secret | None) -> dict[str, str] | None:
    """The values of a ConfigMap or Secret as text, by key; None: there is no such object."""
    contents = contents_of(config)
    return None if contents is None else {key: value.decode("utf-8", "replace") for key, value in contents.items()}


def contents_of(config: ConfigMap | Secret | None) -> dict[str, bytes] | None:
    """The values of a ConfigMap or Secret as bytes, by key; None: there is no such object."""
    if config is None:
        return None
    if isinstance(config, Secret):
        return {key: _decoded(key, value) for key, value in config.data.items()}
    plain = {key: value.encode() for key, value in config.data.items()}
    return plain | {key: _decoded(key, value) for key, value in config.binary_data.items()}


def _decoded(key: str, value: str) -> bytes:
    try:
        return b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise ConfigMissing(f"the value of {key!r} is no base64") from None


def _key_of(selector: KeySelector, word: str, namespace: str, values: Mapping[str, str] | None) -> str | None:
    if values is not None and selector.key in values:
        return values[selector.key]
    if selector.optional:
        return None
    if values is None:
        raise ConfigMissing(f'{word} "{selector.name}" not found')
    raise ConfigMissing(f"couldn't find key {selector.key} in {word} {namespace}/{selector.name}")


def _resource(container: Container, resource: str, divisor: str | int) -> str:
    sort, _, name = resource.partition(".")
    amounts = container.resources.limits if sort == "limits" else container.resources.requests
    amount, unit = parse_quantity(amounts.get(name, 0)), parse_quantity(divisor or 1) or 1.0
    return str(math.ceil((amount or 0.0) / unit))
