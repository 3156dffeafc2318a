"""`eventbus rules check | test | trace | import`: a rules file of the notifier, before it is used."""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eventbus.cli.input.options import namespace_option, seconds_option
from eventbus.cli.printers.output import dump_json, write
from eventbus.cli.session import open_session
from eventbus.util.human_duration import human_duration
from eventbus.util.text import printable

if TYPE_CHECKING:
    from eventbus.model.event import Event
    from eventbus.notify.expect_rules import ExpectRule
    from eventbus.notify.rules import Rules

_FILE = click.Path(path_type=Path)
_output = click.option("-o", "--output", type=click.Choice(["json"]), help="JSON instead of lines.")


@click.command()
@click.argument("file", type=_FILE)
@click.option(
    "--since",
    "since_s",
    callback=seconds_option,
    metavar="DURATION",
    help="Compare matchers with the events stored since, and report those that match none, but nearly some.",
)
@_output
def check_rules(file: Path, since_s: float | None, output: str | None) -> None:
    """Check a rules file. Print its warnings, which are likely mistakes.

    As the worker does at start, it opens each receiver: hosts within your network need the worker's
    EVENTBUS_WEBHOOK_ALLOW_HOSTS here, too. Nothing is sent.

    \b
    Exit codes:
      0  the file can be used
      2  it cannot: each error names line and field

    \b
    Examples:
      eventbus rules check rules.yaml
      eventbus rules check rules.yaml --since 24h
    """
    from eventbus.model.matchers import near_misses
    from eventbus.notify.explain import matchers_of
    from eventbus.notify.receivers.contract import Opening
    from eventbus.notify.routing import route_tree
    from eventbus.notify.rules import load_rules

    parsed = load_rules(file, Opening(environ=os.environ))
    warnings = list(parsed.warnings)
    if since_s is not None:
        warnings += near_misses(matchers_of(parsed.rules), _events_since(since_s))
    routes = sum(1 for _ in route_tree(parsed.rules).all())
    integrations = sum(len([*receiver.integrations()]) for receiver in parsed.rules.receivers)
    if output == "json":
        found = {"hash": parsed.hash, "routes": routes, "integrations": integrations, "warnings": warnings}
        found["expected"] = [{"name": rule.name, "next": _next(rule).isoformat()} for rule in parsed.rules.expect]
        write(dump_json(found) + "\n")
        return
    for warning in warnings:
        write(f"warning: {printable(warning)}\n")
    for rule in parsed.rules.expect:
        about = rule.about
        grace = f", with a grace of {human_duration(rule.grace.ms / 1000)}" if rule.grace else ""
        due = f"{_next(rule):%Y-%m-%d %H:%M:%S %Z}"
        write(f"expects {rule.name} of {about.namespace}/{about.kind}/{about.name}: next by {due}{grace}\n")
    receivers = len(parsed.rules.receivers)
    write(f"{file} is valid: {routes} routes, {receivers} receivers with {integrations} integrations\n")


@click.command()
@click.argument("file", type=_FILE)
@click.option("--cases", type=_FILE, help="A YAML list of cases: name, events, receivers, and at (a time).")
@click.option("--since", "since_s", callback=seconds_option, metavar="DURATION", help="Use the events stored since.")
@_output
def test_rules(file: Path, cases: Path | None, since_s: float | None, output: str | None) -> None:
    """Run rules over cases of a file, or over stored events, on a clock of its own. Nothing is sent.

    With --cases, each case must notify its receivers and no others: for CI. With --since, it prints the notifications
    that the rules would have sent, and near misses of matchers on stderr. A stored event is taken in at its last time
    with its whole count. Both use neither silences, acknowledgements and `expect`, nor the nodes and owners of pods
    for `inhibit_rules`.

    \b
    Exit codes:
      0  all cases have passed
      1  a case has failed
      2  a file cannot be used

    \b
    Examples:
      eventbus rules test rules.yaml --cases cases.yaml
      eventbus rules test rules.yaml --since 6h
    """
    from eventbus.notify.rules import load_rules
    from eventbus.notify.simulation import load_cases, run_case

    if (cases is None) is (since_s is None):
        raise click.UsageError("give --cases or --since")
    rules = load_rules(file).rules
    if since_s is not None:
        _replay(rules, since_s, output)
        return
    assert cases is not None
    results = [run_case(rules, case) for case in load_cases(cases)]
    failed = [result for result in results if not result.passed]
    if output == "json":
        write(dump_json([{name: getattr(each, name) for name in each.__struct_fields__} for each in results]) + "\n")
    else:
        for result in failed:
            write(f"failed: {result.name}: {_names(result.receivers)}, and not {_names(result.expected)}\n")
        write(f"{len(results) - len(failed)} of {len(results)} cases passed\n")
    sys.exit(1 if failed else 0)


@click.command()
@click.argument("event")
@click.option("--rules", "file", type=_FILE, required=True, help="The rules file.")
@namespace_option("Of the event.")
@_output
def trace_rules(event: str, file: Path, namespace: str, output: str | None) -> None:
    """Show which routes take a stored event, and the messages really sent about it, with times and answers.

    EVENT is the name of an event, as `eventbus get events -o name` prints it. The routes are those of the file. Alert,
    groups, silences, inhibition, mutes and the last notification of each receiver are from the state of the notifier,
    which forgets a group when it ends.
    A user of Redis needs the role notifier, worker or deploy for it.

    \b
    Examples:
      eventbus rules trace web-0.17a6101701650000 -n shop --rules rules.yaml
    """
    from eventbus.broker.notifications import read_notifier_status
    from eventbus.model.kinds import ACKNOWLEDGEMENT, SILENCE
    from eventbus.model.list_watch import ListOptions, list_all
    from eventbus.model.matchers import labels_of
    from eventbus.notify.alerts import alert_id
    from eventbus.notify.explain import NotifierView, trace
    from eventbus.notify.group_reader import read_groups_of
    from eventbus.notify.rules import load_rules

    parsed = load_rules(file)
    with open_session() as session:
        found = session.store.get(namespace, event.removeprefix("event/"))
        groups, alerts = read_groups_of(session.bus, session.client, alert_id(labels_of(found)))
        status = read_notifier_status(session.bus, session.client)
        silences = list_all(session.store.objects(SILENCE), ListOptions(limit=500))[0].items
        acknowledgements = list_all(session.store.objects(ACKNOWLEDGEMENT), ListOptions(limit=500))[0].items
    failing = {
        (receiver.name, each.name): each
        for receiver in (status.receivers if status else ())
        for each in receiver.failing
    }
    stored = NotifierView(groups, alerts, failing, silences, acknowledgements)
    lines = list(trace(parsed.rules, found, stored, int(time.time() * 1000)))
    holder = status.holder if status else ""
    if not holder:
        lines.append("no notifier acts")
    elif status and any(each.worker == holder and each.hash != parsed.hash for each in status.files):
        lines.append(f"the acting notifier {holder} has another rules file")
    lines = [printable(line) for line in lines]
    write(dump_json(lines) + "\n" if output == "json" else "\n".join(lines) + "\n")


@click.command()
@click.argument("file", type=_FILE)
@click.option("--strict", is_flag=True, help="Print no rules if something cannot be converted.")
def import_rules(file: Path, strict: bool) -> None:
    """Convert a file of kubernetes-event-exporter or Alertmanager to a rules file, and print it.

    Each value that cannot be converted is named on stderr, with its line and the cure. In doubt the rules
    send more, and never less. Receivers that are exports, such as elasticsearch, stay without integrations. Settings of
    the exporter's process, such as kubeQPS, are left out. A printed file with secrets must be private: see umask.

    
    Exit codes:
      0  everything is converted
      1  something is not; with --strict nothing is printed
      2  the file cannot be used

    
    Examples:
      eventbus rules import exporter.yaml > rules.yaml
      eventbus rules import --strict alertmanager.yml | eventbus rules check /dev/stdin
    """
    from eventbus.notify.conversion import convert_file

    converted = convert_file(file)
    for gap in converted.gaps:
        click.echo(printable(gap), err=True)
    if not (strict and converted.gaps):
        write(f"# Converted from a file of {converted.origin}.\n{converted.text}")
    sys.exit(1 if converted.gaps else 0)


def _next(rule: ExpectRule) -> datetime:
    """Return when the event is due if a notifier starts now."""
    return rule.local(rule.due_ms(time.time_ns() // 1_000_000))


def _replay(rules: Rules, since_s: float, output: str | None) -> None:
    from eventbus.model.matchers import near_misses
    from eventbus.notify.dry_run import describe
    from eventbus.notify.explain import matchers_of
    from eventbus.notify.simulation import simulate

    events = _events_since(since_s)
    for miss in near_misses(matchers_of(rules), events):
        click.echo(f"warning: {printable(miss)}", err=True)
    simulated = list(simulate(rules, events, links=lambda _labels: {}, until=datetime.now(UTC)))
    if output == "json":
        import msgspec

        write(
            dump_json(
                [{"at": each.at.isoformat(), **msgspec.to_builtins(each.send.notification)} for each in simulated]
            )
            + "\n"
        )
        return
    for each in simulated:
        write("\n".join(describe(each.send, each.at)) + "\n")
    write(f"{len(simulated)} notifications about {len(events)} events\n")


def _events_since(since_s: float) -> list[Event]:
    from eventbus.store.story.verdict import last_seen

    since = datetime.fromtimestamp(time.time() - since_s, UTC)
    with open_session() as session:
        return [event for event in session.store.list().items if last_seen(event) >= since]


def _names(receivers: tuple[str, ...]) -> str:
    return ", ".join(receivers) or "no receiver"
