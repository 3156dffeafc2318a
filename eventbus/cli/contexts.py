"""Named buses, like kubectl's contexts: reads and writes their file, and applies one to the environment.

A context is a set of `EVENTBUS_…` variables with a name. It takes effect in the environment, so that every command,
including those that `eventbus exec` runs, uses the same bus.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Final

import msgspec

from eventbus.broker.connection.address import safe_url
from eventbus.errors import ConfigError
from eventbus.model.decodable import decodable

#: Variables with the file, the context to use, and the namespace without -n.
FILE_VARIABLE: Final = "EVENTBUS_CONFIG"
CONTEXT_VARIABLE: Final = "EVENTBUS_CONTEXT"
NAMESPACE_VARIABLE: Final = "EVENTBUS_NAMESPACE"


class Context(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """One bus and our credentials. The fields are those of `Settings`; an empty one counts as not set."""

    name: str
    namespace: str = ""
    redis_url: str = ""
    redis_password_file: str = ""
    prefix: str = ""
    state_dir: str = ""
    url: str = ""
    token_file: str = ""
    ca_file: str = ""
    client_cert: str = ""
    client_key: str = ""

    def variables(self) -> dict[str, str]:
        """Return each variable of a bus → its value; "" where the context has none."""
        return {f"EVENTBUS_{field.upper()}": getattr(self, field) for field in BUS_FIELDS}

    @property
    def where(self) -> str:
        """Return where the bus is, without a password."""
        if self.url:
            from eventbus.client.address import safe_api_url

            return safe_api_url(self.url)
        if self.redis_url:
            return safe_url(self.redis_url)
        return f"embedded server in {self.state_dir or 'its own place'}"


BUS_FIELDS: Final = tuple(field for field in Context.__struct_fields__ if field not in ("name", "namespace"))
#: Secrets that a context does not keep: they belong to the bus that the environment names, and to no other.
_SECRETS: Final = ("EVENTBUS_REDIS_PASSWORD", "EVENTBUS_TOKEN")
#: Variables that choose a bus: if one is set, the current context is not used.
_CHOOSES: Final = ("EVENTBUS_REDIS_URL", "EVENTBUS_URL", "EVENTBUS_STATE_DIR")


class Contexts(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The whole file."""

    current_context: str = ""
    contexts: tuple[Context, ...] = ()

    def named(self, name: str) -> Context:
        """Return the context of that name. Raises: ConfigError: there is none."""
        for context in self.contexts:
            if context.name == name:
                return context
        known = ", ".join(context.name for context in self.contexts) or "none"
        cure = "eventbus config set-context makes one"
        raise ConfigError(f'context "{name}" does not exist; there are: {known}; {cure}', cure=cure)

    def with_context(self, context: Context) -> Contexts:
        """Return the contexts with *context*, which replaces the one of the same name."""
        others = [context if other.name == context.name else other for other in self.contexts]
        kept = others if context in others else [*others, context]
        return msgspec.structs.replace(self, contexts=tuple(kept))

    def without(self, name: str) -> Contexts:
        """Return the contexts without the one of that name."""
        kept = tuple(context for context in self.contexts if context.name != name)
        current = "" if self.current_context == name else self.current_context
        return Contexts(current_context=current, contexts=kept)


def _config_file(environ: Mapping[str, str]) -> Path:
    """Return the path of the file: EVENTBUS_CONFIG, or in the user's folder for configuration."""
    if named := environ.get(FILE_VARIABLE):
        return Path(named)
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".config")
    return Path(base, "eventbus", "config.json")


def read_contexts(environ: Mapping[str, str]) -> Contexts:
    """Read the file; without one there are no contexts. Raises: ConfigError: it cannot be read."""
    path = _config_file(environ)
    try:
        return msgspec.json.decode(path.read_bytes(), type=decodable(Contexts))
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        cure = f"mend or remove it, or name another in {FILE_VARIABLE}"
        raise ConfigError(f"the contexts in {path} cannot be read: {error}: {cure}", cure=cure) from error


def write_contexts(contexts: Contexts, environ: Mapping[str, str]) -> None:
    """Write the file atomically, readable by this user only. Raises: OSError."""
    import tempfile  # most commands only read

    path = _config_file(environ)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".config-")  # mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(contexts), indent=2) + b"\n")
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def use_context(name: str, environ: MutableMapping[str, str]) -> None:
    """Put the settings of the context *name* into *environ*; "": EVENTBUS_CONTEXT, or the current context.

    A named context overrides all variables of the bus. The current one only fills variables that are not set, and is
    not used if the environment chooses a bus.

    Raises: ConfigError: there is no such context, or the file cannot be read.
    """
    name = name or environ.get(CONTEXT_VARIABLE, "")
    if not name and any(environ.get(variable) for variable in _CHOOSES):
        return
    contexts = read_contexts(environ)
    if name:
        _take(contexts.named(name), environ)
    elif contexts.current_context:
        context = contexts.named(contexts.current_context)
        for variable, value in (context.variables() | {NAMESPACE_VARIABLE: context.namespace}).items():
            if value and not environ.get(variable):
                environ[variable] = value


def _take(context: Context, environ: MutableMapping[str, str]) -> None:
    for variable in _SECRETS:
        environ.pop(variable, None)
    for variable, value in context.variables().items():
        if value:
            environ[variable] = value
        else:
            environ.pop(variable, None)
    if context.namespace:
        environ[NAMESPACE_VARIABLE] = context.namespace


def shown(context: Context, *, raw: bool) -> Context:
    """Return the context for display: without password and options in the url, unless *raw*."""
    return (
        context
        if raw
        else msgspec.structs.replace(context, redis_url=safe_url(context.redis_url) if context.redis_url else "")
    )
