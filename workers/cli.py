"""The console command `eventbus`: the commands for people, and `eventbus worker …`."""

from __future__ import annotations

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
    "up": Lazy("workers.up:up", "Run the server, the workers and a Procfile in the foreground."),
    "worker agent": Lazy("workers.agent:agent", "Make this machine a node."),
    "worker api": Lazy("workers.api:api", "Serve the bus over HTTP, as the Kubernetes API does."),
    "worker export": Lazy("workers.export:export", "Write correlated events to an external system."),
    "worker lifecycle": Lazy("workers.lifecycle:lifecycle", "Say which node has fallen silent."),
    "worker log": Lazy("workers.log:log", "Write every event of the bus as a line."),
    "worker sink": Lazy("workers.sink:sink", "Correlate events into the store."),
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
