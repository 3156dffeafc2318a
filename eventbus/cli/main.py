"""The table of commands for people. A new command: a module of its own in this folder, and one line here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eventbus.cli.input.kubectl_habits import get_words, no_such_command, no_such_kind
from eventbus.cli.lazy import Lazy

HELP = """Record events about objects, and read a short history of each object.

\b
Environment variables that select the bus:
  EVENTBUS_REDIS_URL     redis://host:6379/0, rediss://…, redis://a,b (a cluster),
                         redis+sentinel://s1,s2/name/0, unix:///path; unset: an
                         embedded server, started if it is not running
  EVENTBUS_REDIS_PASSWORD, EVENTBUS_REDIS_PASSWORD_FILE   keep it out of the URL
  EVENTBUS_STATE_DIR     folder of the embedded server
  EVENTBUS_URL           https://host, http://127.0.0.1:6480 or http+unix:/path of an API worker:
                         record, exec, get, events, describe, why and status use it instead of Redis
  EVENTBUS_CONTEXT       a context, like --context; see `eventbus config`
  EVENTBUS_NAMESPACE     the namespace without -n
  EVENTBUS_TOKEN_FILE, EVENTBUS_CLIENT_CERT, EVENTBUS_CA_FILE   credentials and CA for the API

\b
Exit codes:
  0  done
  1  failed, a retry may succeed: Redis is unavailable, no such object
  2  failed permanently: wrong usage, invalid input, setting or server

\b
Examples:
  eventbus up                                      # server and workers, until Ctrl-C
  eventbus record Backup/nightly --reason Completed --message "42 GiB in 7 min"
  eventbus get events -w
  eventbus describe pod web-0
  eventbus doctor
"""

GROUPS: dict[str, str] = {
    "config": """Manage contexts: named buses with a namespace, as in kubectl.

    Contexts are in ~/.config/eventbus/config.json, or in the file of EVENTBUS_CONFIG. A context that is selected with
    --context or EVENTBUS_CONTEXT overrides all other settings of the bus. The current context is used if none of
    EVENTBUS_REDIS_URL, EVENTBUS_URL and EVENTBUS_STATE_DIR is set.

    \b
    Examples:
      eventbus config set-context prod --redis-url rediss://redis-1/0 -n shop
      eventbus config use-context prod
      eventbus config set-context --current -n billing
    """,
    "dead": """Show, replay and discard dead letters: entries that no worker could process.

    \b
    Examples:
      eventbus dead list
      eventbus dead show 0/1763700000000-0
      eventbus dead replay --all --cause handler-failed
    """,
    "format": """Show and upgrade the format of the bus, which all its processes must support.

    \b
    Examples:
      eventbus format get
      eventbus format upgrade
    """,
    "functions": """Load, list and delete the functions in Redis. All buses on a server share them.

    Each build has its own functions.

    \b
    Examples:
      eventbus functions load
      eventbus functions list
      eventbus functions prune
    """,
    "get": """List the objects of the store.

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

    Options control correlation and retention.

    \b
    Examples:
      eventbus options get
      eventbus options set burst=50 exempt_namespaces=kube-system,audit
    """,
    "postgres": """Give the table of a PostgreSQL sink partitions by day.

    \b
    Examples:
      eventbus postgres partition --to 'postgresql://events@db/events'
    """,
    "rules": """Check and try the rules of notifications, before `eventbus worker notify` uses them.

    \b
    Examples:
      eventbus rules check rules.yaml
      eventbus rules test rules.yaml --cases cases.yaml
      eventbus rules test rules.yaml --since 6h
      eventbus rules import exporter.yaml > rules.yaml
    """,
    "silence": """Silence alerts for some time, so that the notifier does not send them.

    \b
    Examples:
      eventbus silence add namespace=shop --for 2h --comment "upgrade of the database"
      eventbus silence list
      eventbus silence expire 16c07010-bd85-474d-acde-6636a1045961
    """,
    "spool": """List and send the events that processes keep on disk (EVENTBUS_SPOOL).

    \b
    Examples:
      eventbus spool list
      eventbus spool send
    """,
}

#: The words of a command → its module, and its line in --help. Import redis inside the command, not above it.
COMMANDS: dict[str, Lazy] = {
    "ack": Lazy("eventbus.cli.commands.silence:ack", "Acknowledge the alerts about an object."),
    "acl": Lazy("eventbus.cli.commands.acl:acl", "Print the ACL line for a user of one role."),
    "api-resources": Lazy("eventbus.cli.commands.api_resources:api_resources", "List the kinds of the store."),
    "apply": Lazy("eventbus.cli.commands.apply:apply", "Create or change objects from files."),
    "completion": Lazy("eventbus.cli.completion:completion", "Print the script for shell completion."),
    "config current-context": Lazy("eventbus.cli.commands.config:current_context", "Print the current context."),
    "config delete-context": Lazy("eventbus.cli.commands.config:delete_context", "Delete a context."),
    "config get-contexts": Lazy("eventbus.cli.commands.config:get_contexts", "List the contexts."),
    "config set-context": Lazy("eventbus.cli.commands.config:set_context", "Create or change a context."),
    "config use-context": Lazy("eventbus.cli.commands.config:use_context", "Select the current context."),
    "config view": Lazy("eventbus.cli.commands.config:view", "Show the contexts, without passwords."),
    "dead discard": Lazy("eventbus.cli.commands.dead:discard_dead", "Delete dead letters permanently."),
    "dead list": Lazy("eventbus.cli.commands.dead:list_dead", "List dead letters."),
    "dead replay": Lazy("eventbus.cli.commands.dead:replay_dead", "Send dead letters to their group again."),
    "dead show": Lazy("eventbus.cli.commands.dead:show_dead", "Show one dead letter."),
    "create": Lazy("eventbus.cli.commands.create:create", "Store the objects of a file."),
    "delete": Lazy("eventbus.cli.commands.delete:delete", "Delete objects from the store."),
    "describe": Lazy("eventbus.cli.commands.describe:describe", "Show one object, with its events."),
    "doctor": Lazy("eventbus.cli.commands.doctor:doctor", "Find problems, and show the fix."),
    "events": Lazy("eventbus.cli.commands.events:events", "Show events, like `kubectl events`."),
    "down": Lazy("eventbus.cli.commands.down:down", "Stop the embedded server and keep its data."),
    "exec": Lazy("eventbus.cli.commands.exec:exec_", "Run a command and record its start and exit."),
    "format get": Lazy("eventbus.cli.commands.format:get_format", "Show the format of the bus."),
    "format upgrade": Lazy("eventbus.cli.commands.format:upgrade_format", "Upgrade the bus to the newest format."),
    "functions list": Lazy("eventbus.cli.commands.functions:list_functions", "List builds with functions in Redis."),
    "functions load": Lazy("eventbus.cli.commands.functions:load_functions", "Load the functions of this build."),
    "functions prune": Lazy(
        "eventbus.cli.commands.functions:prune_functions", "Delete the functions of unused builds."
    ),
    "get all": Lazy("eventbus.cli.commands.get_all:get_all", "List all objects of the store."),
    "get events": Lazy("eventbus.cli.commands.get_events:get_events", "List events, the latest last; -w watches them."),
    "get expected": Lazy("eventbus.cli.commands.get_expected:get_expected", "List the events that rules expect."),
    "get leases": Lazy("eventbus.cli.commands.get_objects:get_leases", "List leases with their holders."),
    "get nodes": Lazy("eventbus.cli.commands.get_objects:get_nodes", "List nodes, like kubectl."),
    "get acknowledgements": Lazy("eventbus.cli.commands.get_objects:get_acknowledgements", "List acknowledgements."),
    "get configmaps": Lazy("eventbus.cli.commands.get_objects:get_configmaps", "List ConfigMaps."),
    "get pods": Lazy("eventbus.cli.commands.get_objects:get_pods", "List pods with node and status."),
    "get secrets": Lazy("eventbus.cli.commands.get_objects:get_secrets", "List Secrets; -o yaml shows their values."),
    "get silences": Lazy("eventbus.cli.commands.get_objects:get_silences", "List silences with their state."),
    "get suppressed": Lazy(
        "eventbus.cli.commands.get_suppressed:get_suppressed", "Show suppressed and aggregated events by source."
    ),
    "group delete": Lazy("eventbus.cli.commands.group:delete_group", "Delete an unused group."),
    "group list": Lazy("eventbus.cli.commands.group:list_groups", "List the groups with their lag."),
    "help": Lazy("eventbus.cli.commands.help:help_", "Show the help of a command."),
    "heartbeat": Lazy("eventbus.cli.commands.heartbeat:heartbeat", "Send heartbeats as a node."),
    "kubeconfig": Lazy("eventbus.cli.commands.kubeconfig:kubeconfig", "Print a kubeconfig for the API of this bus."),
    "logs": Lazy("eventbus.cli.commands.logs:logs", "Print the output of a pod."),
    "mcp": Lazy("eventbus.cli.commands.mcp:mcp", "Answer an assistant over the Model Context Protocol."),
    "options get": Lazy("eventbus.cli.commands.options:get_options", "Show the options and their version."),
    "options set": Lazy("eventbus.cli.commands.options:set_options", "Change options for all workers."),
    "postgres partition": Lazy(
        "eventbus.cli.commands.postgres:partition_table", "Give the table of a sink partitions by day."
    ),
    "record": Lazy("eventbus.cli.commands.record:record", "Record one event about KIND/NAME."),
    "rules check": Lazy("eventbus.cli.commands.rules:check_rules", "Check a rules file of the notifier."),
    "rules import": Lazy("eventbus.cli.commands.rules:import_rules", "Convert a file of another program to rules."),
    "rules test": Lazy("eventbus.cli.commands.rules:test_rules", "Run rules over cases or stored events."),
    "rules trace": Lazy("eventbus.cli.commands.rules:trace_rules", "Show how rules treat a stored event."),
    "silence add": Lazy("eventbus.cli.commands.silence:add_silence", "Silence the alerts that match."),
    "silence expire": Lazy("eventbus.cli.commands.silence:expire_silences", "End silences now."),
    "silence list": Lazy("eventbus.cli.commands.silence:list_silences", "List active and pending silences."),
    "spool list": Lazy("eventbus.cli.commands.spool:list_spooled", "List unsent events on disk."),
    "spool send": Lazy("eventbus.cli.commands.spool:send_spooled", "Send them, and delete them from disk."),
    "status": Lazy("eventbus.cli.commands.status:status", "Show groups, workers and counters of the bus."),
    "version": Lazy(
        "eventbus.cli.commands.version:version", "Show version, commit, build and formats of this program."
    ),
    "wait": Lazy("eventbus.cli.commands.wait:wait", "Wait for a condition of stored objects."),
    "watch-systemd": Lazy("eventbus.cli.commands.watch_systemd:watch_systemd", "Record the changes of systemd units."),
    "why": Lazy("eventbus.cli.commands.why:why", "Show why an object fails, with related events."),
}

#: kubectl's other words for commands.
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
    "get silence": "get silences",
    "get acknowledgement": "get acknowledgements",
    "get ack": "get acknowledgements",
}

#: Group → the function that suggests a replacement for an unknown command.
UNKNOWN: dict[str, Callable[[str, Sequence[str]], str]] = {"": no_such_command, "get": no_such_kind}

#: Group → the function that rewrites its words.
REWORDED: dict[str, Callable[[list[str]], list[str]]] = {"get": get_words}
