"""`eventbus logs`: the output of a pod's processes, on the machine where it runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, BinaryIO, Final

import click

from eventbus.cli.input.options import namespace_option
from eventbus.errors import EventBusError, NotFound
from eventbus.model.reference import meant_kinds, reference_from_text
from eventbus.util.text import printable

if TYPE_CHECKING:
    from eventbus.agent.logs import LocalPods
    from eventbus.agent.runtime.contract import ContainerRuntimeStatus, PodRuntimeStatus

_BLOCK: Final = 256 * 1024


@click.command()
@click.argument("pod", metavar="POD")
@click.option("-c", "--container", default="", metavar="NAME", help="Container, if the pod has several.")
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the process ends.")
@click.option("-p", "--previous", is_flag=True, help="Logs of the previous run, for example to see why it crashed.")
@click.option("--tail", type=click.IntRange(min=0), metavar="LINES", help="Only this number of lines at the end.")
@namespace_option("Of the pod.")
def logs(pod: str, container: str, follow: bool, previous: bool, tail: int | None, namespace: str) -> None:
    """Print the output of the processes of a pod, both streams together.

    Logs stay on the machine where the pod runs, 5 pieces of 10 MiB a run; elsewhere this names that machine. A pod of
    a file may be called without the node's name at its end, and so may a line of `eventbus up`. EVENTBUS_STATE_DIR must
    be the agent's, or that of `up`.

    \b
    Examples:
      eventbus logs web
      eventbus logs web -f --tail 20
      eventbus logs pod/web -c init -p

    \b
    Exit codes:
      0  printed
      1  no such pod, container or run here
      2  wrong usage, or a container has to be chosen
    """
    from eventbus.agent.logs import LocalPods
    from eventbus.agent.pods.options import agent_folder
    from eventbus.agent.procfile.orphaned_processes import line_folders
    from eventbus.settings import Settings

    name = pod
    if "/" in pod:
        typed = reference_from_text(pod)
        if "pod" not in meant_kinds(typed.kind):
            raise click.UsageError(f"only pods have logs, not {typed.kind!a}")
        name, namespace = typed.name, typed.namespace or namespace
    agents = agent_folder(Settings.from_environ(os.environ), os.environ)
    places = [LocalPods(folder.absolute()) for folder in (agents, *line_folders(agents.parent))]
    found_in = ((local, local.named(name, namespace)) for local in places)
    local, pods = next(((local, pods) for local, pods in found_in if pods), (places[0], []))
    if not pods:
        raise NotFound(_elsewhere(name, namespace))
    run = _run_of(pods[0], container, previous=previous)
    _print(local, pods[0], run, follow=follow and not previous, tail=tail)


def _run_of(pod: PodRuntimeStatus, container: str, *, previous: bool) -> ContainerRuntimeStatus:
    names = list(dict.fromkeys(run.name for run in pod.containers))
    main = list(dict.fromkeys(run.name for run in pod.containers if not run.init))
    if not container:
        if len(main) > 1:
            raise click.UsageError(f"a container name must be specified for pod {pod.name}, choose one of: {names}")
        container = next(iter(main or names), "")
    run = pod.previous(container) if previous else pod.container(container)
    if run is None and previous and container in names:
        raise NotFound(f'previous terminated container "{container}" in pod "{pod.name}" not found')
    if run is None:
        known = f"; it has {', '.join(names)}" if names else ": nothing of it was started yet"
        raise NotFound(f"container {container or '?'} has no run in pod {pod.name}{known}")
    return run


def _elsewhere(name: str, namespace: str) -> str:
    """Return a hint at the node that runs the pod, if the store has it."""
    from eventbus.cli.session import open_session
    from eventbus.model.kinds import POD

    missing = f'pods "{printable(name)}" not found on this machine'
    try:
        with open_session() as session:
            pod = session.store.objects(POD).get(name, namespace)
    except NotFound:
        return f"{missing}, in the namespace {printable(namespace)}: `eventbus get pods -A` lists all pods"
    except EventBusError as error:
        return f"{missing}, and where else it may be is not known: {error}"
    node = pod.spec.node_name
    if not node:
        return f"pod {name} is on no node: its spec.nodeName is empty"
    return f"pod {name} is on node {node}: run `eventbus logs {name}` there"


def _print(
    local: LocalPods, pod: PodRuntimeStatus, run: ContainerRuntimeStatus, *, follow: bool, tail: int | None
) -> None:
    files = local.open_log(pod, run)
    output = sys.stdout.buffer
    with ExitStack() as opened:
        for file in files:
            opened.enter_context(file)
        sizes = [os.fstat(file.fileno()).st_size for file in files]
        for data in _whole(files, sizes) if tail is None else _last_lines(files, sizes, tail):
            output.write(data)
        output.flush()
        if follow:
            if files:
                files[-1].seek(sizes[-1])
            for data in local.follow(pod, run, files[-1] if files else None):
                output.write(data)
                output.flush()


def _whole(files: Sequence[BinaryIO], sizes: Sequence[int]) -> Iterator[bytes]:
    """Yield the bytes of *files*, each up to its size at the start, because processes may still write."""
    for file, size in zip(files, sizes, strict=True):
        for at in range(0, size, _BLOCK):
            yield os.pread(file.fileno(), min(_BLOCK, size - at), at)


def _last_lines(files: Sequence[BinaryIO], sizes: Sequence[int], count: int) -> Sequence[bytes]:
    """Return the last lines of *files*, read from the end, because files may have 50 MiB."""
    blocks: list[bytes] = []
    ends = 0
    for file, size in zip(reversed(files), reversed(sizes), strict=True):
        for end in range(size, 0, -_BLOCK):
            if ends > count:
                break
            begin = max(0, end - _BLOCK)
            blocks.append(os.pread(file.fileno(), end - begin, begin))
            ends += blocks[-1].count(b"\n")
    lines = b"".join(reversed(blocks)).splitlines(keepends=True)
    return lines[len(lines) - count :] if count < len(lines) else lines
