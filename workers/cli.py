"""The console command `eventbus`: the commands for people, and `eventbus worker …`."""

from __future__ import annotations

import os
import signal
from types import FrameType

from eventbus.cli.lazy import Lazy, command_tree
from eventbus.cli.main import ALIASES, COMMANDS, GROUPS, HELP, REWORDED, UNKNOWN

WORKER_GROUPS: dict[str, str] = {
    "worker": """Long-lived processes that read the stream; any number of each.

    \b
    Examples:
      eventbus worker sink
      eventbus worker log --format json
      eventbus worker export --to file:events.jsonl
    """,
}

#: As `eventbus.cli.main.COMMANDS`.
WORKER_COMMANDS: dict[str, Lazy] = {
    "up": Lazy("eventbus.workers.up:up", "Run the server, the workers and a Procfile in the foreground."),
    "worker agent": Lazy("eventbus.workers.agent:agent", "Make this machine a node."),
    "worker api": Lazy("eventbus.workers.api:api", "Serve the bus over HTTP, as the Kubernetes API does."),
    "worker export": Lazy("eventbus.workers.export:export", "Write correlated events to an external system."),
    "worker import": Lazy("eventbus.workers.import_events:import_events", "Import the events of a cluster."),
    "worker lifecycle": Lazy("eventbus.workers.lifecycle:lifecycle", "Detect nodes without heartbeats."),
    "worker log": Lazy("eventbus.workers.log:log", "Write every event of the bus as a line."),
    "worker metrics": Lazy("eventbus.workers.metrics:metrics", "Serve the numbers of the bus to Prometheus."),
    "worker notify": Lazy("eventbus.workers.notify:notify", "Send notifications about events, by rules."),
    "worker sink": Lazy("eventbus.workers.sink:sink", "Correlate events into the store."),
}

main = command_tree(
    "eventbus",
    GROUPS | WORKER_GROUPS,
    COMMANDS | WORKER_COMMANDS,
    help=HELP,
    aliases=ALIASES,
    unknown=UNKNOWN,
    reworded=REWORDED,
)


def _end_at_once(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)


def _let_ctrl_c_end_imports() -> None:
    """Let Ctrl-C end a worker during its imports; afterwards `Signals` handles it.

    A KeyboardInterrupt in a callback that Python runs in the middle of an import is lost, and the worker would go on.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end_at_once)


main.commands["worker"].callback = _let_ctrl_c_end_imports
