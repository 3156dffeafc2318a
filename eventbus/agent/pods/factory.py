"""Makes the parts that run the pods of this machine: runtime, recorder with its spool, sources, admission."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from eventbus.agent.config.file_source import FileSource
from eventbus.agent.config.http_source import open_http_source
from eventbus.agent.config.pod_config import PodConfig
from eventbus.agent.logs import NODE_NAME
from eventbus.agent.node.agent import COMPONENT
from eventbus.agent.node.bus_contact import BusContact
from eventbus.agent.node.factory import node_labels, node_name
from eventbus.agent.node.machine import Machine, local_identity
from eventbus.agent.node.node_status import NodeStatusSetters, parse_thresholds
from eventbus.agent.pods.admission import NodeCapacity
from eventbus.agent.pods.options import PodOptions, agent_folder
from eventbus.agent.pods.permission import Permission
from eventbus.agent.pods.pod_agent import PodAgent, PodSource
from eventbus.agent.pods.store_handle import StoreHandle
from eventbus.agent.runtime.folders import make_folder
from eventbus.agent.runtime.isolation import ISOLATION_LABEL, find_isolation
from eventbus.agent.runtime.process_runtime import ProcessRuntime
from eventbus.errors import ConfigError
from eventbus.model.event import ObjectReference
from eventbus.model.objects.cluster import WARNING, Node
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.record.recorder import EventRecorder
from eventbus.settings import Settings
from eventbus.util.clock import Clock, SystemClock

#: In the agent's folder: locked by the agent that runs its pods, with the agent's pid.
_LOCK: Final = "agent.lock"


class OpenedPods(NamedTuple):
    """An agent's pods, and the broadcaster of their events.

    *labels*: of the node, that of its isolation among them.
    *kill*: kills all processes that the agent does not leave to the next agent; for signal handlers.
    """

    agent: PodAgent
    folder: Path
    broadcaster: EventBroadcaster
    flush_s: float
    kill: Callable[[], object]
    labels: Mapping[str, str]

    def stop(self, timeout_s: float) -> bool:
        """End all of it; unsent events stay in the spool. Idempotent. Returns: all pods ended in time."""
        deadline = time.monotonic() + timeout_s
        ended = self.agent.stop(timeout_s)
        self.broadcaster.shutdown(max(0.2, min(self.flush_s, deadline - time.monotonic())))
        return ended


def open_pods(
    options: PodOptions,
    settings: Settings,
    *,
    node: str = "",
    labels: Mapping[str, str],
    standalone: bool,
    environ: Mapping[str, str] = os.environ,
) -> OpenedPods:
    """Open the agent of this machine's pods; no pod runs before its `start`.

    Events that the bus does not take are kept in a spool, and sent in order when it is there.

    Raises: ConfigError: psutil is missing, a pattern, the URL or the folder will not do, or another agent has it.
    """
    clock = SystemClock()
    folder = agent_folder(settings, environ)
    make_folder(folder)
    _hold(folder)
    isolation = find_isolation()
    own_labels = {ISOLATION_LABEL: isolation.name, **labels}
    machine = _describe_machine(folder, node, own_labels, options, clock)
    with suppress(OSError):  # the disk is full; the host's name is the usual one
        (folder / NODE_NAME).write_text(machine.name)
    spooled = settings if settings.spool else msgspec.structs.replace(settings, spool=str(folder / "spool"))
    broadcaster = EventBroadcaster(settings=spooled)
    recorder = broadcaster.new_recorder(COMPONENT, machine.name)
    store_handle = StoreHandle()
    runtime = ProcessRuntime(
        state_dir=folder,
        events=recorder,
        configs=store_handle,
        clock=clock,
        facts={"status.hostIP": machine.address, "status.podIP": machine.address},
        isolation=isolation,
    )
    agent = PodAgent(
        node_name=machine.name,
        runtime=runtime,
        capacity=machine.capacity,
        permission=Permission(
            options.allow_commands, options.allow_users, options.allow_env, options.allow_groups, options.from_bus
        ),
        events=recorder,
        clock=clock,
        store_handle=store_handle,
        make_sources=_sources_of(options, machine.name, recorder, clock, environ),
        address=machine.address,
        expects_bus=not standalone,
        leave_pods=options.leave_pods,
    )
    kill = (lambda: None) if options.leave_pods else runtime.kill_at_once
    return OpenedPods(agent, folder, broadcaster, settings.flush_s, kill, own_labels)


def _hold(folder: Path) -> None:
    """Keep *folder* for this process, until that ends: two agents would start and end each other's processes.

    The lock is POSIX's, which no child inherits, and which goes with the process however that ends.

    Raises: ConfigError: another process has it, or its disk knows no locks.  OSError: it is not ours.
    """
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o640)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # EAGAIN, EACCES: another process has it
        holder = os.read(lock, 20).decode("ascii", "replace")
        os.close(lock)
        cure = "end it, or give this one an EVENTBUS_STATE_DIR of its own"
        raise ConfigError(f"an agent, pid {holder or 'unknown'}, has the pods of {folder} already: {cure}") from None
    except OSError as error:  # a network's, without its locks
        os.close(lock)
        cure = "give an EVENTBUS_STATE_DIR on a disk of this machine"
        raise ConfigError(f"{folder} cannot be locked ({error.strerror}): {cure}") from None
    with suppress(OSError):  # the disk is full
        os.ftruncate(lock, 0)
        os.write(lock, str(os.getpid()).encode())


class _NodeFacts(NamedTuple):
    """The node as its pods see it. *capacity*: its resources and labels, *address*: its InternalIP or ""."""

    name: str
    capacity: NodeCapacity
    address: str


def _describe_machine(
    folder: Path, node: str, labels: Mapping[str, str], options: PodOptions, clock: Clock
) -> _NodeFacts:
    machine, identity = Machine(folder), local_identity()
    name = node or node_name(machine.hostname())
    setters = NodeStatusSetters(
        machine=machine,
        identity=identity,
        clock=clock,
        contact=BusContact(clock),
        thresholds=parse_thresholds(options.pressure_thresholds),
        max_pods=options.max_pods,
    )
    described = setters.node_address(setters.machine_info(Node()))
    capacity = NodeCapacity(dict(described.status.allocatable), node_labels(name, identity, labels))
    address = next(
        (node_address.address for node_address in described.status.addresses if node_address.type == "InternalIP"), ""
    )
    return _NodeFacts(name, capacity, address)


def _sources_of(
    options: PodOptions, node: str, recorder: EventRecorder, clock: Clock, environ: Mapping[str, str]
) -> Callable[[PodConfig], Sequence[PodSource]]:
    """Return a function that makes the sources without a bus; invalid pods become Warnings about the node."""

    def invalid(where: str, problem: str) -> None:
        about = ObjectReference(kind="Node", name=node, uid=node, api_version="v1")
        recorder.event(about, WARNING, "FailedValidation", f"Error validating pods from {where}: {problem}"[:1024])

    def sources(config: PodConfig) -> Sequence[PodSource]:
        opened: list[PodSource] = []
        if options.manifests:
            opened.append(FileSource(config, node=node, manifests=options.manifests, invalid=invalid, clock=clock))
        if options.manifest_url:
            opened.append(open_http_source(config, options.manifest_url, node=node, invalid=invalid, environ=environ))
        return opened

    return sources
