"""Makes pods of a Procfile: each line is one, of one container, run by /bin/sh."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from eventbus.agent.procfile.procfile import ports_of
from eventbus.errors import InvalidObject
from eventbus.model.event import ObjectMeta
from eventbus.model.names import MAX_LABEL
from eventbus.model.objects.container import Container, EnvVar
from eventbus.model.objects.pod import Pod, PodSpec

#: Which line of which Procfile a pod is.
LINE_LABEL: Final = "eventbus.dev/procfile-line"
_NO_LABEL: Final = re.compile(r"[^a-z0-9-]+")


def procfile_pods(commands: Mapping[str, str], folder: Path, environ: Mapping[str, str]) -> list[Pod]:
    """Return a pod a line, in their order. They run in *folder* and have the variables of *environ* and a PORT.

    As with `eventbus up`, a line that ends with exit code 0 is complete.

    Raises: InvalidObject: two names are the same as names of pods: `my_web` and `my-web`.  ConfigError: no such port.
    """
    ports = ports_of(commands, environ)
    pods: dict[str, Pod] = {}
    for name, command in commands.items():
        pod = line_pod(name, ("/bin/sh", "-c", command), {**environ, "PORT": ports[name]}, folder)
        called = pod.metadata.name
        if called in pods:
            raise InvalidObject(f"two lines are called {called}: names of pods have no _ and no capitals")
        pods[called] = pod
    return list(pods.values())


def line_pod(
    name: str,
    words: Sequence[str],
    environ: Mapping[str, str],
    folder: Path,
    *,
    restart_policy: str = "OnFailure",
) -> Pod:
    """Return the pod of a line that is called *name*, and runs *words* in *folder*."""
    called = _NO_LABEL.sub("-", name.lower()).strip("-")[:MAX_LABEL] or "line"
    container = Container(
        name=called,
        command=tuple(map(_literal, words)),
        working_dir=str(folder.absolute()),
        env=tuple(EnvVar(name=key, value=_literal(value)) for key, value in environ.items()),
    )
    return Pod(
        metadata=ObjectMeta(name=called, labels={LINE_LABEL: name}),
        spec=PodSpec(containers=(container,), restart_policy=restart_policy),
    )


def _literal(word: str) -> str:
    """Escape $, because $(NAME) and $$ are replaced in a Pod's command."""
    return word.replace("$", "$$")
