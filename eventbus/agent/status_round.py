"""Runs status functions so that one that raises or hangs costs its own fields only."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

from eventbus.agent.node_status import NodeStatusFunc, names_of
from eventbus.log import log
from eventbus.objects.node import Node

#: A function that takes longer is left to itself for this round, seconds: a disk that does not answer takes for ever.
LONGEST_S = 2.0


class StatusRound:
    """The functions of one node, run one after the other, each on what the one before has made.

    Each runs in a thread of its own, which a function that hangs keeps: it is not called again before it has come
    back, and what it gives then is too old to count. *failures* counts by function. One round at a time.
    """

    def __init__(self, functions: Sequence[NodeStatusFunc], *, longest_s: float = LONGEST_S) -> None:
        self.failures: Counter[str] = Counter()
        self._functions = list(zip(names_of(functions), functions, strict=True))
        self._longest_s = longest_s
        self._hanging: dict[int, _Call] = {}

    def run(self, node: Node) -> Node:
        """*node* with what the functions have found; fields of those that failed stay as they were."""
        for number, (name, function) in enumerate(self._functions):
            node = self._run_one(number, name, function, node)
        return node

    def _run_one(self, number: int, name: str, function: NodeStatusFunc, node: Node) -> Node:
        hanging = self._hanging.get(number)
        if hanging is not None and hanging.is_alive():
            self.failures[name] += 1
            return node
        if self._hanging.pop(number, None) is not None:
            log.warning("the status function %s has come back, and is called again", name)
        call = _Call(name, function, node)
        call.start()
        call.join(self._longest_s)
        if call.is_alive():
            self._hanging[number] = call
            self.failures[name] += 1
            log.error("the status function %s hangs: its fields stay as they were", name)
            return node
        if call.error is not None:
            self.failures[name] += 1
            log.error("the status function %s failed: its fields stay as they were", name, exc_info=call.error)
            return node
        return call.result if call.result is not None else node


class _Call(threading.Thread):
    def __init__(self, name: str, function: NodeStatusFunc, node: Node) -> None:
        super().__init__(name=f"eventbus-status-{name}", daemon=True)
        self.error: Exception | None = None
        self.result: Node | None = None
        self._function = function
        self._node = node

    def run(self) -> None:
        try:
            found = self._function(self._node)
            if not isinstance(found, Node):
                raise TypeError(f"it must return a Node, not {type(found).__name__}")
            if found.metadata.name != self._node.metadata.name:
                raise ValueError(f"it returned another node, {found.metadata.name}")
            self.result = found
        except Exception as error:  # it is somebody else's function
            self.error = error
