"""Reads a Procfile and its `.env` as foreman and honcho do, and makes a pod of each line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from eventbus.errors import ConfigError, InvalidObject
from eventbus.model.event import ObjectMeta
from eventbus.model.names import MAX_LABEL
from eventbus.model.objects.container import Container, EnvVar
from eventbus.model.objects.pod import Pod, PodSpec

_COMMAND: Final = re.compile(r"([A-Za-z0-9_-]+):\s*(\S.*)")
_VARIABLE: Final = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")
_ESCAPES: Final = {r"\n": "\n", r"\t": "\t", r"\"": '"', "\\\\": "\\"}
#: The name of `up` itself in its output.
RESERVED: Final = "up"
#: foreman's first port, and the step from a line of the Procfile to the next.
FIRST_PORT, PORT_STEP = 5000, 100
LAST_PORT: Final = 65_535
_PORT: Final = re.compile(r"[0-9]{1,5}")
#: Which line of which Procfile a pod is.
LINE_LABEL: Final = "eventbus.dev/procfile-line"
_NO_LABEL: Final = re.compile(r"[^a-z0-9-]+")


def read_procfile(path: Path) -> dict[str, str]:
    """Return the commands of *path*, `name: command` a line, by name, in its order.

    Empty lines and those that begin with # do not count.

    Raises: ConfigError: it cannot be read, or a line is wrong; the message has its number.
    """
    commands: dict[str, str] = {}
    for number, line in _lines(path):
        match = _COMMAND.fullmatch(line)
        if match is None:
            raise ConfigError(f"{path}:{number}: not of the form `name: command` (names: letters, digits, - and _)")
        name, command = match.groups()
        if name in commands or name == RESERVED:
            raise ConfigError(f"{path}:{number}: the name {name!r} is {'taken' if name == RESERVED else 'used twice'}")
        commands[name] = command
    return commands


def read_env_file(path: Path) -> dict[str, str]:
    """Return the variables of *path*; none if there is no such file. `A=b`, `A='b'`, `A="b\\n"`, `export A=b`, `# …`.

    Raises: ConfigError: it cannot be read, or a line is none of these; the message has its number.
    """
    variables: dict[str, str] = {}
    for number, line in _lines(path, missing_ok=True):
        match = _VARIABLE.fullmatch(line)
        if match is None:
            raise ConfigError(f"{path}:{number}: not of the form NAME=value")
        variables[match[1]] = _value(match[2])
    return variables


def ports_of(names: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the PORT of each line: the variable PORT, or 5000, and 100 more for each next one.

    Raises: ConfigError: PORT is none, or too high for so many lines. Where there are none it may be anything.
    """
    base = environ.get("PORT") or str(FIRST_PORT)
    names = list(names)
    if names and not (_PORT.fullmatch(base) and 0 < int(base) <= LAST_PORT):
        raise ConfigError(f"PORT={base[:80]!r} is not a port, like {FIRST_PORT}")
    ports = {name: int(base) + PORT_STEP * place for place, name in enumerate(names)}
    if any(port > LAST_PORT for port in ports.values()):
        raise ConfigError(
            f"PORT={base!r} leaves none for the last of {len(names)} lines, each {PORT_STEP} above the one before"
        )
    return {name: str(port) for name, port in ports.items()}


def procfile_pods(commands: Mapping[str, str], folder: Path, environ: Mapping[str, str]) -> list[Pod]:
    """Return a pod a line, in their order. They run in *folder* and have the variables of *environ* and a PORT.

    A line that ends with exit code 0 is complete.

    Raises: InvalidObject: two lines have the same name as pods: `my_web` and `my-web`.  ConfigError: no such port.
    """
    ports = ports_of(commands, environ)
    pods: dict[str, Pod] = {}
    for name, command in commands.items():
        pod = line_pod(name, ("/bin/sh", "-c", command), {**environ, "PORT": ports[name]}, folder)
        if other := pods.get(pod.metadata.name):
            raise InvalidObject(
                f"two lines, {line_name(other)} and {name}, are called {pod.metadata.name} as pods: names of pods have "
                "no _ and no capitals, so rename one"
            )
        pods[pod.metadata.name] = pod
    return list(pods.values())


def line_name(pod: Pod) -> str:
    """Return the name that the line of *pod* has in its Procfile."""
    return pod.metadata.labels[LINE_LABEL]


def line_pod(
    name: str,
    words: Sequence[str],
    environ: Mapping[str, str],
    folder: Path,
    *,
    namespace: str = "",
    restart_policy: str = "OnFailure",
) -> Pod:
    """Return the pod of a line that is called *name*, and runs *words* in *folder*. *namespace*: "" is the default."""
    called = _NO_LABEL.sub("-", name.lower()).strip("-")[:MAX_LABEL] or "line"
    container = Container(
        name=called,
        command=tuple(map(_literal, words)),
        working_dir=str(folder.absolute()),
        env=tuple(EnvVar(name=key, value=_literal(value)) for key, value in environ.items()),
    )
    return Pod(
        metadata=ObjectMeta(name=called, namespace=namespace, labels={LINE_LABEL: name}),
        spec=PodSpec(containers=(container,), restart_policy=restart_policy),
    )


def _lines(path: Path, *, missing_ok: bool = False) -> list[tuple[int, str]]:
    """Return the lines, stripped, each with its number; not empty ones and comments. Raises: ConfigError."""
    try:
        text = path.read_text("utf-8") if path.exists() or not missing_ok else ""
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    lines = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1))
    return [(number, line) for number, line in lines if line and not line.startswith("#")]


def _value(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1]
    if len(text) > 1 and text[0] == text[-1] == '"':
        return re.sub(r"\\[nt\"\\]", lambda match: _ESCAPES[match[0]], text[1:-1])
    return text


def _literal(word: str) -> str:
    """Escape $, because $(NAME) and $$ are replaced in a Pod's command."""
    return word.replace("$", "$$")
