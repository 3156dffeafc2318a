"""The table of commands for people. A new command: a module of its own in this folder, and one line here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eventbus.cli.input.kubectl_habits import get_words, no_such_command, no_such_kind
from eventbus.cli.lazy import Lazy, command_tree

HELP = """Record what happens to objects, and read a short, true history of it.

\b
Where the bus is:
  EVENTBUS_REDIS_URL     redis://host:6379/0, rediss://…, redis://a,b (a cluster),
                         redis+sentinel://s1,s2/name/0, unix:///path; unset: an
                         embedded server, started where it is missing
  EVENTBUS_REDIS_PASSWORD, EVENTBUS_REDIS_PASSWORD_FILE   kept out of the url
  EVENTBUS_STATE_DIR     where the embedded server lives
  EVENTBUS_URL           https://host, http://127.0.0.1:6480 or http+unix:/path of an API worker:
                         record, exec, get, events, describe, why and status go there, not to Redis
  EVENTBUS_CONTEXT       a bus by its name, as --context; see `eventbus config`
  EVENTBUS_NAMESPACE     the namespace where -n is not given
  EVENTBUS_TOKEN_FILE, EVENTBUS_CLIENT_CERT, EVENTBUS_CA_FILE   who we are there, whom we trust

\b
Exit codes:
  0  done
  1  it could not be done now: Redis does not answer, no such object
  2  it can never be done so: wrong usage, bad input, a setting or server that will not do

\b
Examples:
  eventbus up                                      # server and workers, until Ctrl-C
  eventbus record Backup/nightly --reason Completed --message "42 GiB in 7 min"
  eventbus get events -w
  eventbus describe pod web-0
  eventbus doctor
"""

GROUPS: dict[str, str] = {
    "config": """Give buses names, each with its own namespace: contexts, as kubectl has them.

    They are in ~/.config/eventbus/config.json, or in the file that EVENTBUS_CONFIG names. A context that is named, by
    --context or EVENTBUS_CONTEXT, says all about where the bus is. The current one is used where the environment has
    chosen no bus by EVENTBUS_REDIS_URL, EVENTBUS_URL or EVENTBUS_STATE_DIR.

    \b
    Examples:
      eventbus config set-context prod --redis-url rediss://redis-1/0 -n shop
      eventbus config use-context prod
      eventbus config set-context --current -n billing
    """,
    "dead": """The dead letter: events that no worker could handle.

    \b
    Examples:
      eventbus dead list
      eventbus dead show 0/1763700000000-0
      eventbus dead replay --all --cause handler-failed
    """,
    "format": """What all processes of a bus must be able to read.

    \b
    Examples:
      eventbus format get
      eventbus format upgrade
    """,
    "functions": """The functions in Redis that do the work of the bus. All buses on a server share them.

    Each build has functions of its own, which lie beside those of others.

    \b
    Examples:
      eventbus functions load
      eventbus functions list
      eventbus functions prune
    """,
    "get": """List what the store holds.

    \b
    Examples:
      eventbus get events -A -w
      eventbus get nodes
      eventbus get suppressed
    """,
    "group": """List and delete consumer groups, which share the stream.

    \b
    Examples:
      eventbus group list
      eventbus group delete billing
    """,
    "options": """Show and change the options of the whole bus.

    They say how it correlates, and what it keeps.

    \b
    Examples:
      eventbus options get
      eventbus options set burst=50 exempt_namespaces=kube-system,audit
    """,
    "spool": """What processes have kept on disk because Redis did not take it (EVENTBUS_SPOOL).

    \b
    Examples:
      eventbus spool list
      eventbus spool send
    """,
}

#: Words a person types → where the command is, and its line in --help. Import redis inside the command, not above it.
COMMANDS: dict[str, Lazy] = {
    "acl": Lazy("eventbus.cli.commands.acl:acl", "Print the ACL line for a user of one role."),
    "api-resources": Lazy("eventbus.cli.commands.api_resources:api_resources", "List the kinds that the store holds."),
    "apply": Lazy("eventbus.cli.commands.apply:apply", "Make stored objects be as files say."),
    "completion": Lazy("eventbus.cli.completion:completion", "Print the script that makes a shell complete all this."),
    "config current-context": Lazy("eventbus.cli.commands.config:current_context", "Print the current context."),
    "config delete-context": Lazy("eventbus.cli.commands.config:delete_context", "Forget a context."),
    "config get-contexts": Lazy("eventbus.cli.commands.config:get_contexts", "List the contexts."),
    "config rename-context": Lazy("eventbus.cli.commands.config:rename_context", "Give a context another name."),
    "config set-context": Lazy("eventbus.cli.commands.config:set_context", "Make a context, or change one."),
    "config use-context": Lazy("eventbus.cli.commands.config:use_context", "Make a context the current one."),
    "config view": Lazy("eventbus.cli.commands.config:view", "Show the contexts, without passwords."),
    "dead discard": Lazy("eventbus.cli.commands.dead:discard_dead", "Let buried entries go for good."),
    "dead list": Lazy("eventbus.cli.commands.dead:list_dead", "List entries that no worker could handle."),
    "dead replay": Lazy("eventbus.cli.commands.dead:replay_dead", "Give buried entries back to their group."),
    "dead show": Lazy("eventbus.cli.commands.dead:show_dead", "Show one buried entry."),
    "create": Lazy("eventbus.cli.commands.create:create", "Store the objects of a file."),
    "delete": Lazy("eventbus.cli.commands.delete:delete", "Take objects out of the store."),
    "describe": Lazy("eventbus.cli.commands.describe:describe", "Show one object, with its events."),
    "doctor": Lazy("eventbus.cli.commands.doctor:doctor", "Look for what is wrong, and say the cure."),
    "events": Lazy("eventbus.cli.commands.events:events", "Events as `kubectl events` shows them."),
    "down": Lazy("eventbus.cli.commands.down:down", "Stop the embedded server; its data stays."),
    "exec": Lazy("eventbus.cli.commands.exec:exec_", "Run a command and record its life."),
    "format get": Lazy("eventbus.cli.commands.format:get_format", "Show the format of the bus."),
    "format upgrade": Lazy("eventbus.cli.commands.format:upgrade_format", "Give the bus the newest format."),
    "functions list": Lazy("eventbus.cli.commands.functions:list_functions", "List builds with functions there."),
    "functions load": Lazy("eventbus.cli.commands.functions:load_functions", "Load the functions of this build."),
    "functions prune": Lazy(
        "eventbus.cli.commands.functions:prune_functions", "Delete functions of builds that are not used."
    ),
    "get all": Lazy("eventbus.cli.commands.get_all:get_all", "Everything that the store holds."),
    "get events": Lazy(
        "eventbus.cli.commands.get_events:get_events", "Events, the latest last; -w shows them as they come."
    ),
    "get leases": Lazy("eventbus.cli.commands.get_objects:get_leases", "Leases: who holds what, and until when."),
    "get nodes": Lazy("eventbus.cli.commands.get_objects:get_nodes", "Nodes, as kubectl shows them."),
    "get configmaps": Lazy("eventbus.cli.commands.get_objects:get_configmaps", "ConfigMaps: settings of pods."),
    "get pods": Lazy("eventbus.cli.commands.get_objects:get_pods", "Pods: what runs where, and how it is."),
    "get secrets": Lazy(
        "eventbus.cli.commands.get_objects:get_secrets", "Secrets: their names; -o yaml shows their values."
    ),
    "get suppressed": Lazy(
        "eventbus.cli.commands.get_suppressed:get_suppressed", "Show how much was held back or folded, by source."
    ),
    "group delete": Lazy("eventbus.cli.commands.group:delete_group", "Delete a group that will not be back."),
    "group list": Lazy("eventbus.cli.commands.group:list_groups", "Show the groups, and how far behind they are."),
    "help": Lazy("eventbus.cli.commands.help:help_", "Show the help of a command."),
    "heartbeat": Lazy(
        "eventbus.cli.commands.heartbeat:heartbeat", "Make anything a node that is missed when it falls silent."
    ),
    "kubeconfig": Lazy(
        "eventbus.cli.commands.kubeconfig:kubeconfig", "Print what kubectl needs to reach the API of this bus."
    ),
    "logs": Lazy("eventbus.cli.commands.logs:logs", "Print what the processes of a pod have printed."),
    "options get": Lazy("eventbus.cli.commands.options:get_options", "Show the options and their version."),
    "options set": Lazy("eventbus.cli.commands.options:set_options", "Change options for all workers at once."),
    "record": Lazy("eventbus.cli.commands.record:record", "Record one event about KIND/NAME."),
    "spool list": Lazy("eventbus.cli.commands.spool:list_spooled", "List what dead processes have left on disk."),
    "spool send": Lazy("eventbus.cli.commands.spool:send_spooled", "Send it, and remove it from the disk."),
    "status": Lazy("eventbus.cli.commands.status:status", "Groups, workers, fullness and counters of the bus."),
    "version": Lazy("eventbus.cli.commands.version:version", "Show the version of this program."),
    "wait": Lazy("eventbus.cli.commands.wait:wait", "Wait until stored objects are as asked."),
    "why": Lazy("eventbus.cli.commands.why:why", "Show why an object fails, and what happened around it."),
}

#: What people who know kubectl type as well.
ALIASES: dict[str, str] = {
    "get event": "get events",
    "get ev": "get events",
    "get node": "get nodes",
    "get no": "get nodes",
    "get lease": "get leases",
    "get pod": "get pods",
    "get po": "get pods",
    "get configmap": "get configmaps",
    "get cm": "get configmaps",
    "get secret": "get secrets",
}

#: Groups that have more to say of a word that is none of their commands.
UNKNOWN: dict[str, Callable[[str, Sequence[str]], str]] = {"": no_such_command, "get": no_such_kind}

#: Groups that are typed in other ways as well.
REWORDED: dict[str, Callable[[list[str]], list[str]]] = {"get": get_words}

cli = command_tree("eventbus", GROUPS, COMMANDS, help=HELP, aliases=ALIASES, unknown=UNKNOWN, reworded=REWORDED)
