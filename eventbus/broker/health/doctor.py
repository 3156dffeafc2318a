"""Runs every check on a server and the bus on it; each makes findings with their cures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from eventbus.broker.access.granted import check_replay, check_rights
from eventbus.broker.access.roles import Role
from eventbus.broker.connection.connect import connect, primaries, safe_url
from eventbus.broker.health.bus_checks import check_bus
from eventbus.broker.health.findings import Finding, failed, ok
from eventbus.broker.health.network_checks import check_default_user, check_tls
from eventbus.broker.health.server_checks import check_functions, check_other_builds, check_server_of
from eventbus.broker.health.spoiled_checks import check_keys
from eventbus.errors import EventBusError
from eventbus.settings import Settings


def examine(url: str, settings: Settings, *, role: Role | None) -> list[Finding]:
    """Run every check on the server at *url* and the bus on it.

    Never raises for what is wrong with them: that is a finding.

    Args: role: what the user is meant for; None: any.
    """
    try:
        client = connect(url, name="eventbus-doctor")
    except EventBusError as problem:
        return [failed("connection", problem, "correct EVENTBUS_REDIS_URL; unset, it is the embedded server")]
    try:
        findings = [ok("connection", safe_url(url)), check_tls(url), check_default_user(url)]
        for node in primaries(client):
            findings += _guarded("server", partial(check_server_of, node))
            findings += _guarded("user", partial(check_replay, node, settings.prefix))
        findings += _guarded("functions", lambda: [check_functions(client, settings.prefix)])
        findings += _guarded("functions", lambda: check_other_builds(client))
        findings += _guarded("bus", lambda: check_bus(client, url, settings))
        findings += _guarded("keys", lambda: check_keys(client, settings.prefix))
        findings += _guarded("acl", lambda: [check_rights(client, settings.prefix, role)])
        return findings
    finally:
        client.close()


def _guarded(check: str, run: Callable[[], Iterable[Finding]]) -> list[Finding]:
    try:
        return list(run())
    except EventBusError as problem:
        return [failed(check, problem)]
