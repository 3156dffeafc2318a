"""The status functions of a node, and their thresholds: each takes the Node and adds its part, as the kubelet's.

`NodeStatusSetters` has the default functions. A user's functions run after them. They are given to the agent, or
registered as an entry point of the group `eventbus.node_status`, with a function from Node to Node as value.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib import metadata
from typing import Final, NamedTuple, TypeAlias

import msgspec

from eventbus.agent.node.bus_contact import BusContact
from eventbus.agent.node.machine import Identity, Machine
from eventbus.errors import ConfigError
from eventbus.model.names import parse_quantity
from eventbus.model.objects.cluster import (
    DISK_PRESSURE,
    FALSE,
    MEMORY_PRESSURE,
    NETWORK_UNAVAILABLE,
    PID_PRESSURE,
    READY,
    TRUE,
    Node,
    NodeAddress,
    NodeStatus,
    NodeSystemInfo,
    with_condition,
)
from eventbus.util.clock import Clock
from eventbus.util.log import log

MEMORY, DISK = "memory.available", "nodefs.available"
_TERM: Final = re.compile(r"([a-z.]+)<([0-9].*)")


class Threshold(NamedTuple):
    """The least that should be left: a share of all, or bytes."""

    share: float = 0.0
    amount: float = 0.0

    def least(self, total: float) -> float:
        """Return the bytes that should be left of *total*."""
        return self.share * total if self.share else self.amount


class Thresholds(NamedTuple):
    """Of memory, and of the file system of the state folder."""

    memory: Threshold = Threshold(amount=100 * 1024 * 1024)
    disk: Threshold = Threshold(share=0.10)


def parse_thresholds(text: str) -> Thresholds:
    """Read `memory.available<100Mi,nodefs.available<10%`; others keep their defaults. Raises: ConfigError.

    Source: kubelet --eviction-hard; nothing is evicted here.
    """
    thresholds: dict[str, Threshold] = {}
    for term in filter(None, text.replace(" ", "").split(",")):
        matched = _TERM.fullmatch(term)
        threshold = _threshold(matched[2]) if matched else None
        if matched is None or threshold is None or matched[1] not in (MEMORY, DISK):
            raise ConfigError(f"--pressure-thresholds {term!r}: give {MEMORY}<100Mi or {DISK}<10%")
        thresholds[matched[1]] = threshold
    usual = Thresholds()
    return Thresholds(thresholds.get(MEMORY, usual.memory), thresholds.get(DISK, usual.disk))


def _threshold(text: str) -> Threshold | None:
    read: Callable[[object], float | None] = parse_quantity
    if text.endswith("%"):
        percent = read(text[:-1])
        return Threshold(share=percent / 100) if percent is not None and 0 < percent <= 100 else None
    amount = read(text)
    return Threshold(amount=amount) if amount is not None else None


NodeStatusFunc: TypeAlias = Callable[[Node], Node]

#: The kubelet's.
USUAL: Final = Thresholds()
ENTRY_POINTS: Final = "eventbus.node_status"
#: With a smaller free share of pid_max, the Node has PIDPressure.
LEAST_PID_SHARE: Final = 0.05
#: The time of the status functions in a round, seconds; one that takes longer hangs.
FUNCTIONS_S: Final = 5.0
#: The number of pods that a node takes by default, as the kubelet's --max-pods.
MOST_PODS: Final = 110


def registered_node_status_funcs() -> list[NodeStatusFunc]:
    """Return the functions of installed packages, by name. A function that cannot be loaded is logged and left out."""
    functions: list[NodeStatusFunc] = []
    for entry in sorted(metadata.entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name):
        try:
            function = entry.load()
        except Exception:  # a package of the user may raise anything
            log.exception("the status function %s = %s cannot be loaded, and is left out", entry.name, entry.value)
            continue
        if callable(function):
            functions.append(function)
        else:
            log.error("the status function %s = %s is none, and is left out", entry.name, entry.value)
    return functions


class NodeStatusSetters:
    """The default functions, each a method."""

    def __init__(
        self,
        *,
        machine: Machine,
        identity: Identity,
        clock: Clock,
        contact: BusContact,
        thresholds: Thresholds = USUAL,
        max_pods: int = MOST_PODS,
    ) -> None:
        self._machine = machine
        self._max_pods = max_pods
        self._thresholds = thresholds
        self._identity = identity
        self._clock = clock
        self._contact = contact

    def in_order(self) -> list[NodeStatusFunc]:
        """Return all of them; Ready is last, because it may use the results of the others.

        Source: kubelet `kubelet_node_status.go` defaultNodeStatusFuncs.
        """
        return [
            self.node_address,
            self.machine_info,
            self.version_info,
            self.memory_pressure,
            self.disk_pressure,
            self.pid_pressure,
            self.network_unavailable,
            self.ready,
        ]

    def node_address(self, node: Node) -> Node:
        """Addresses: the host's name, and the first address of each family that others may reach it by."""
        texts = self._machine.addresses()
        firsts = [next((text for text in texts if (":" in text) == is_v6), "") for is_v6 in (False, True)]
        addresses = [NodeAddress("InternalIP", address) for address in firsts if address]
        addresses.append(NodeAddress("Hostname", self._machine.hostname()))
        return _with_status(node, addresses=tuple(addresses))

    def machine_info(self, node: Node) -> Node:
        """Capacity and Allocatable: the capacity without the memory and disk of the pressure thresholds."""
        memory, disk = self._machine.memory(), self._machine.disk()
        cpus, pods = str(self._machine.cpus()), str(self._max_pods)
        capacity = {"cpu": cpus, "memory": _kib(memory.total), "ephemeral-storage": _kib(disk.total), "pods": pods}
        left = {
            "memory": _kib(max(0, memory.total - int(self._thresholds.memory.least(memory.total)))),
            "ephemeral-storage": _kib(max(0, disk.total - int(self._thresholds.disk.least(disk.total)))),
        }
        return _with_status(node, capacity=capacity, allocatable=capacity | left)

    def version_info(self, node: Node) -> Node:
        """NodeInfo: which machine, started when, with which kernel, system and agent."""
        known = self._identity
        info = NodeSystemInfo(
            machine_id=known.machine_id,
            system_uuid=known.system_uuid,
            boot_id=self._machine.boot_id(),
            kernel_version=known.kernel,
            os_image=known.os_image,
            container_runtime_version=known.runtime,
            kubelet_version=known.agent,
            operating_system=known.operating_system,
            architecture=known.architecture,
        )
        return _with_status(node, node_info=info)

    def memory_pressure(self, node: Node) -> Node:
        """MemoryPressure: True while less memory than the threshold is available."""
        memory = self._machine.memory()
        pressed = memory.available < self._thresholds.memory.least(memory.total)
        return self._pressure(node, MEMORY_PRESSURE, pressed, "InsufficientMemory", "SufficientMemory", "memory")

    def disk_pressure(self, node: Node) -> Node:
        """DiskPressure: True while less than the threshold of the state folder's disk is free."""
        disk = self._machine.disk()
        pressed = disk.free < self._thresholds.disk.least(disk.total)
        return self._pressure(node, DISK_PRESSURE, pressed, "DiskPressure", "NoDiskPressure", "disk space")

    def pid_pressure(self, node: Node) -> Node:
        """PIDPressure: True while fewer processes may be started than LEAST_PID_SHARE of all."""
        used, most = self._machine.pids()
        pressed = most - used < LEAST_PID_SHARE * most
        return self._pressure(node, PID_PRESSURE, pressed, "InsufficientPID", "SufficientPID", "PID")

    def network_unavailable(self, node: Node) -> Node:
        """True if the bus was away lately, so that reports may be late or missing."""
        if away := self._contact.lately_away():
            return self._condition(node, NETWORK_UNAVAILABLE, TRUE, "BusWasAway", f"the bus was away lately: {away}")
        return self._condition(node, NETWORK_UNAVAILABLE, FALSE, "BusReachable", "the bus answers")

    def ready(self, node: Node) -> Node:
        """Ready: True whenever a status is written; lifecycle workers set it to Unknown."""
        return self._condition(node, READY, TRUE, "AgentReady", "agent is posting ready status")

    def _pressure(self, node: Node, type: str, pressed: bool, bad: str, good: str, resource: str) -> Node:
        verb = {"DiskPressure": "has disk pressure", "NoDiskPressure": "has no disk pressure"}
        word = bad if pressed else good
        message = verb.get(word, f"has {'insufficient' if pressed else 'sufficient'} {resource} available")
        return self._condition(node, type, TRUE if pressed else FALSE, f"AgentHas{word}", f"agent {message}")

    def _condition(self, node: Node, type: str, value: str, reason: str, message: str) -> Node:
        now = datetime.fromtimestamp(self._clock.time_ns() / 1e9, UTC)
        status = with_condition(node.status, type, value, reason, message, now, now)
        return msgspec.structs.replace(node, status=status)


class StatusFunctions:
    """The status functions of a node, in their order. One thread calls `apply`.

    They run in another thread: a function that hangs is left out until it returns, and its fields stay as they were.
    So do those of a function that raises, or does not return this node. *failures* counts both by name.
    """

    def __init__(self, functions: Sequence[NodeStatusFunc], timeout_s: float = FUNCTIONS_S) -> None:
        self.failures: Counter[str] = Counter()
        self._functions = functions
        self._timeout_s = timeout_s
        self._hanging: dict[int, threading.Thread] = {}  # place of a function → the thread that waits for it

    def apply(self, node: Node) -> Node:
        """Return *node* after each function has changed it in turn."""
        places = [place for place in range(len(self._functions)) if not self._hangs(place)]
        while places:
            turn = _Turn(node, [self._functions[place] for place in places], self.failures)
            thread = threading.Thread(target=turn.run, name="eventbus-agent-status-functions", daemon=True)
            thread.start()
            thread.join(self._timeout_s)
            node, done = turn.end()
            if done == len(places):
                break
            self._hanging[places[done]] = thread
            name = _name_of(self._functions[places[done]])
            self.failures[name] += 1
            log.error("the status function %s hangs: its fields stay as they were until it returns", name)
            places = places[done + 1 :]
        return node

    def _hangs(self, place: int) -> bool:
        thread = self._hanging.get(place)
        return thread is not None and thread.is_alive()


class _Turn:
    """Runs functions in its thread until all are done, or the turn has ended."""

    def __init__(self, node: Node, functions: Sequence[NodeStatusFunc], failures: Counter[str]) -> None:
        self._functions = functions
        self._failures = failures
        self._lock = threading.Lock()
        self._node, self._done, self._ended = node, 0, False

    def run(self) -> None:
        for function in self._functions:
            node = _changed_by(function, self._node, self._failures)
            with self._lock:
                if self._ended:
                    return
                self._node, self._done = node, self._done + 1

    def end(self) -> tuple[Node, int]:
        """Let no other function begin. Returns: the node, and how many functions have changed it."""
        with self._lock:
            self._ended = True
            return self._node, self._done


def _changed_by(function: NodeStatusFunc, node: Node, failures: Counter[str]) -> Node:
    try:
        changed = function(node)
        if not isinstance(changed, Node):
            raise TypeError(f"it must return a Node, not {type(changed).__name__}")
        if changed.metadata.name != node.metadata.name:
            raise ValueError(f"it returned another node, {changed.metadata.name}")
    except Exception:  # a package of the user may raise anything
        failures[_name_of(function)] += 1
        log.exception("the status function %s failed: its fields stay as they were", _name_of(function))
        return node
    return changed


def _name_of(function: NodeStatusFunc) -> str:
    return getattr(function, "__name__", None) or repr(function)


def _with_status(node: Node, **changes: object) -> Node:
    status: NodeStatus = msgspec.structs.replace(node.status, **changes)
    return msgspec.structs.replace(node, status=status)


def _kib(amount: int) -> str:
    return f"{max(0, amount) // 1024}Ki"
