"""`eventbus doctor`: finds problems and prints their solutions."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from eventbus.broker.health.findings import Finding, Severity, error, failed, warning, worst
from eventbus.cli.commands.acl import ROLES
from eventbus.cli.printers.output import dump_json, wants_colour, write
from eventbus.errors import ConfigError, EventBusError
from eventbus.settings import Settings
from eventbus.util.table import Cell, Colour, Row, format_table


@click.command()
@click.option("--role", type=click.Choice(ROLES), help="Role that this user must have.  [default: any]")
@click.option("-o", "--output", type=click.Choice(["json"]), help="The findings as JSON.")
@click.pass_context
def doctor(ctx: click.Context, role: str | None, output: str | None) -> None:
    """Find problems of the server, the bus and this machine, and show how to fix them.

    It checks the connection, TLS and users; the server's version, eviction, persistence and clock; the functions;
    memory against the bounds of the options; full streams and groups without workers; corrupt keys and interrupted
    calls; the rights of the current user; the disk of the embedded server and the process that keeps it running; the
    spool; another package with the name `workers`. It changes nothing. Without EVENTBUS_REDIS_URL, it starts the
    embedded server if necessary, like all commands.

    \b
    Exit codes:
      0  no problems
      1  warnings: it works, but events may be lost, or it is slow or insecure
      2  errors: it does not work, or will lose events

    \b
    Examples:
      eventbus doctor
      eventbus doctor --role producer
      eventbus doctor -o json | jq -r '.findings[] | select(.severity != "ok") | .cure'
    """
    findings = look(role)
    if output == "json":
        write(dump_json(_to_json(findings)) + "\n")
    else:
        write(_page(findings, colour=wants_colour(sys.stdout)))
    ctx.exit(int(worst(findings)))


def look(role: str | None) -> list[Finding]:
    """Run every check, the connection first, because the others depend on it."""
    try:
        settings = Settings.from_environ(os.environ)
    except ConfigError as problem:
        return [error("settings", str(problem), "correct that variable")]
    return [*_look_at_server(settings, role), *_embedded(), *_spool(settings)]


def _look_at_server(settings: Settings, role: str | None) -> list[Finding]:
    from eventbus.broker.acl import Role
    from eventbus.broker.health.doctor import examine
    from eventbus.cli.session import find_url

    if settings.url:
        cure = "take EVENTBUS_URL away, and set EVENTBUS_REDIS_URL, where you want Redis looked at"
        return [warning("connection", "EVENTBUS_URL names an API worker; doctor looks at Redis itself", cure)]
    if settings.redis_url.lower() == "none":
        cure = "set EVENTBUS_REDIS_URL to redis://host:6379/0, or unset it for the embedded server"
        return [warning("connection", "no bus (EVENTBUS_REDIS_URL=none): events are only logged", cure)]
    try:
        url = find_url(settings)
    except EventBusError as problem:
        cure = "correct EVENTBUS_REDIS_URL, or the password's variable; without a url it is the embedded server"
        embedded = "read */server.log in its folder, EVENTBUS_STATE_DIR or ~/.local/state/eventbus"
        return [failed("connection", problem, cure if settings.redis_url else embedded)]
    return examine(url, settings, role=None if role is None else Role(role))


def _embedded() -> list[Finding]:
    from eventbus.cli.this_machine import check_disk, check_left_lines

    try:
        disk = check_disk(os.environ)
        lines = check_left_lines(os.environ)
        return [disk, lines]
    except (EventBusError, OSError) as problem:
        return [warning("disk", str(problem), "set EVENTBUS_STATE_DIR to a folder of yours")]


def _spool(settings: Settings) -> list[Finding]:
    if not settings.spool:
        return []
    from eventbus.cli.this_machine import check_spool

    return [check_spool(settings.spool)]


def _page(findings: Sequence[Finding], *, colour: bool) -> str:
    rows: list[Row] = []
    for finding in findings:
        warns = colour and finding.severity is not Severity.OK
        word = Cell(finding.severity.name.lower(), Colour.YELLOW if warns else Colour.PLAIN)
        rows.append((word, finding.check, finding.message))
        if finding.cure:
            rows.append(("", "", f"→ {finding.cure}"))
    return format_table(("State", "Check", "Finding"), rows)


def _to_json(findings: Sequence[Finding]) -> dict[str, object]:
    return {
        "severity": worst(findings).name.lower(),
        "findings": [
            {
                "check": finding.check,
                "severity": finding.severity.name.lower(),
                "message": finding.message,
                "cure": finding.cure,
            }
            for finding in findings
        ],
    }
