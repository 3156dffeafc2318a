"""Runs every check on a server and the bus on it; the checks of the connection and the server are here."""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from eventbus.broker import OLDEST_VERSION
from eventbus.broker.acl import Role
from eventbus.broker.build import build
from eventbus.broker.calls import call_function
from eventbus.broker.connection.address import Endpoint, parse_address, safe_url
from eventbus.broker.connection.connect import Client, connect, primaries
from eventbus.broker.connection.tls import checks_name
from eventbus.broker.function_library import LOAD_CURE, describe, read_libraries
from eventbus.broker.health.bus_checks import check_bus
from eventbus.broker.health.findings import Finding, error, failed, ok, warning
from eventbus.broker.health.key_checks import check_keys
from eventbus.broker.health.user_checks import accepts_nameless, check_replay, check_rights
from eventbus.broker.health.worker_problems import check_worker_problems
from eventbus.broker.keys import bus_key
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import EventBusError, FunctionsForbidden, FunctionsMissing
from eventbus.settings import Settings


def check_tls(url: str) -> Finding:
    """Check that passwords and events do not cross a network in the open."""
    address = parse_address(url)
    if address.tls:
        if address.options.get("ssl_cert_reqs") == "none":
            cure = "take ssl_cert_reqs=none out of the url; a private authority: ?ssl_ca_certs=/path/ca.pem"
            return warning("tls", "TLS without checking the certificate: any host can pose as the server", cure)
        if not checks_name(address):
            problem = "TLS without checking the name in the certificate: other hosts can pose as the server"
            return warning(
                "tls", problem, "take ssl_check_hostname out of the url, and connect by a name in the certificate"
            )
        return ok("tls", "TLS")
    if is_local(url):
        return ok("tls", "not needed: the server is on this machine")
    cure = "let the server speak TLS (tls-port), and use rediss://"
    return warning("tls", "passwords and events cross the network unencrypted", cure)


def check_default_user(url: str, prefix: str) -> Finding:
    """Check that the user `default`, which has all rights, is not open to all hosts that reach the server."""
    address = parse_address(url)
    named = bool(address.username) and address.username != "default"
    if is_local(url) and not named:
        return ok("user", "default, on this machine")
    if named and not accepts_nameless(url, prefix):
        return ok("user", f"{address.username}; default is closed")
    cure = "eventbus acl --role … makes users; then ACL SETUSER default off"
    if named:
        return warning("user", "the user `default` is open without a password, and has all rights", cure)
    open_to = "all programs with the password" if address.password else "all hosts"
    return warning("user", f"the user `default`, which has all rights, is open to {open_to}", cure)


def is_local(url: str) -> bool:
    """Return True if all servers are on this machine: a socket, or names that resolve to loopback addresses only."""
    return all(map(_is_loopback, parse_address(url).endpoints))


def _is_loopback(endpoint: Endpoint) -> bool:
    try:
        addresses = {str(info[4][0]) for info in socket.getaddrinfo(endpoint.host, None)}
    except OSError:
        return False
    return all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses)


#: Clocks may differ so much, seconds: ages are off by it, and `--since`. Then an hour's events look old or future.
CLOCK_WARNING_S, CLOCK_ERROR_S = 2.0, 60.0


def check_server_of(node: Any) -> list[Finding]:
    """Check version, eviction, persistence, replication and clock of one server."""
    with redis_errors():
        began = time.time()
        server_time = node.time()
        skew = server_time[0] + server_time[1] / 1e6 - (began + time.time()) / 2
        info: dict[str, Any] = node.info()
        config = _config(node, "appendfsync") | _config(node, "save")
    return [
        check_version(info),
        check_eviction(info),
        check_persistence(info, config),
        *check_replication(info),
        check_clock(skew),
    ]


def check_version(info: dict[str, Any]) -> Finding:
    """Check that it is Redis >= 7.0 or Valkey >= 8."""
    kind = "valkey" if "valkey_version" in info else "redis"
    text = str(info.get("valkey_version") or info.get("redis_version") or "?")
    version = tuple(int(part) for part in text.split(".") if part.isdecimal())
    if version < OLDEST_VERSION[kind]:
        cure = "eventbus needs Redis >= 7.0 or Valkey >= 8: its functions, and how they run when memory is full"
        return error("server", f"{kind.capitalize()} {text} is too old", cure)
    return ok("server", f"{kind.capitalize()} {text}")


def check_eviction(info: dict[str, Any]) -> Finding:
    """Check that the server evicts nothing: it would take streams and counts away, silently."""
    policy = info.get("maxmemory_policy")
    if policy not in (None, "noeviction"):
        cure = "CONFIG SET maxmemory-policy noeviction, and write it into the server's configuration file"
        return error("eviction", f"maxmemory-policy is {policy}: when it is full the server deletes events", cure)
    return ok("eviction", "noeviction")


def check_persistence(info: dict[str, Any], config: dict[str, str]) -> Finding:
    """Check that acknowledged events outlive a restart, and that they outlived the last one."""
    aof, fsync = info.get("aof_enabled"), config.get("appendfsync")
    # Counted when a server refuses commands of the file that it loads, or of its primary. Only its log says more.
    if refused := info.get("unexpected_error_replies"):
        return error(
            "persistence",
            f"the server refused {refused} commands when it loaded its append-only file or followed its primary: "
            "events are missing",
            "find CRITICAL in the server's log, correct the cause, and restart the server before it rewrites its file; "
            "or restore a backup (docs/production.md)",
        )
    if "err" in (info.get("aof_last_write_status"), info.get("rdb_last_bgsave_status")):
        return error(
            "persistence", "the server could not write its last file", "free space on its disk, and look into its log"
        )
    if not aof:
        kept = config.get("save")
        problem = (
            "AOF is off: a restart loses all events since the last snapshot"
            if kept != ""
            else ("AOF is off, and so are snapshots: a restart loses every event and every count")
        )
        cure = "CONFIG SET appendonly yes, and write it into the server's configuration file"
        return (error if kept == "" else warning)("persistence", problem, cure)
    if fsync == "no":
        return warning(
            "persistence",
            "appendfsync is no: a crash of the machine loses up to half a minute",
            "CONFIG SET appendfsync everysec",
        )
    words = {
        "always": "AOF, appendfsync always: acknowledged events are on the disk",
        "everysec": "AOF, appendfsync everysec: producers send events again that a crash loses",
    }
    return ok("persistence", words.get(fsync or "", "AOF is on (appendfsync: this user may not ask)"))


def check_replication(info: dict[str, Any]) -> list[Finding]:
    """Check the losses of a failover; a server without replicas outside a cluster gives no finding."""
    if info.get("role") == "slave":
        problem = f"this is a replica of {info.get('master_host')}:{info.get('master_port')}: it takes no events"
        return [error("replicas", problem, "give the primary's address, or redis+sentinel://host:26379/NAME/0")]
    replicas = int(info.get("connected_slaves") or 0)
    if not replicas and info.get("cluster_enabled") == 1:
        problem = "a node of the cluster without a replica: if it dies its partitions stand still until it is back"
        return [warning("replicas", problem, "add a replica of it: redis-cli --cluster add-node … --cluster-slave")]
    if not replicas:
        return []
    several = "s" * (replicas != 1)
    # The server reports the number of good replicas only if it has a minimum.
    if "min_slaves_good_slaves" not in info:
        problem = (
            f"{replicas} replica{several}, and min-replicas-to-write is 0: a primary that is cut off goes on taking "
            "events, and a failover drops them; those that their producers no longer have are lost"
        )
        cure = "CONFIG SET min-replicas-to-write 1 on it and its replicas, and write it into their configuration files"
        return [warning("replicas", problem, cure)]
    return [
        ok("replicas", f"{replicas} replica{several}; without one in touch it takes nothing (min-replicas-to-write)")
    ]


def check_clock(skew_s: float) -> Finding:
    """Compare the server's clock with this machine's, from which ages are computed."""
    size = abs(skew_s)
    direction = "fast" if skew_s > 0 else "slow"
    if size < CLOCK_WARNING_S:
        return ok("clock", f"differs from here by {size:.1f} s at the most")
    report = error if size >= CLOCK_ERROR_S else warning
    return report(
        "clock",
        f"the clock of the server is {size:.0f} s {direction}, compared with this machine",
        "let both follow a time server (NTP)",
    )


def check_functions(client: Client, prefix: str) -> Finding:
    """Check that the functions of this build are loaded."""
    try:
        call_function(client, "build", ())
    except FunctionsForbidden:
        cure = "add the rights that `eventbus acl --add` of this version prints for the role of the user"
        return error("functions", f"this user may not call the functions of build {build()}", cure)
    except FunctionsMissing:
        with redis_errors():
            (partitions,) = client.hmget(
                bus_key(prefix), ["partitions"]
            )  # of a hash every role may read that, and no more
        if partitions is None:
            return ok("functions", "not loaded yet: `eventbus functions load` does it, or opening the bus as an admin")
        problem = f"those of build {build()}, this program's, are not loaded: it can neither publish nor record"
        return error("functions", problem, LOAD_CURE)
    return ok("functions", f"build {build()}")


def check_other_builds(client: Client) -> Iterator[Finding]:
    """Name the functions of other builds, where this user may ask for them."""
    if not all(_may(node, "FUNCTION", "LIST") for node in primaries(client)):
        return
    for library in read_libraries(client):
        if library.is_ours:
            continue
        if library.in_use:
            yield ok("functions", f"those of build {library.build} are in use: {describe(library.announced[0])}")
        else:
            last = f", last by {describe(library.announced[0])}" if library.announced else ""
            yield warning(
                "functions", f"those of build {library.build} are not in use{last}", "eventbus functions prune"
            )


def _may(node: Any, *command: str) -> bool:
    """Ask whether this user may call *command*: a refusal would leave a line in the server's ACL log."""
    from redis.exceptions import ResponseError

    try:
        user = node.execute_command("ACL", "WHOAMI")
        return node.execute_command("ACL", "DRYRUN", user, *command) in (b"OK", True)
    except ResponseError:
        return False


def _config(node: Any, name: str) -> dict[str, str]:
    from redis.exceptions import ResponseError

    try:
        if not _may(node, "CONFIG", "GET", name):
            return {}
        values: dict[str, str] = node.config_get(name)
    except ResponseError:  # no permission, or a provider has removed the command
        return {}
    return values


def examine(url: str, settings: Settings, *, role: Role | None) -> list[Finding]:
    """Run every check on the server at *url* and the bus on it.

    Never raises for their problems: those are findings.

    Args: role: the intended role of the user; None: any.
    """
    try:
        client = connect(url, name="eventbus-doctor")
    except EventBusError as problem:
        return [failed("connection", problem, "correct EVENTBUS_REDIS_URL; unset, it is the embedded server")]
    try:
        findings = [ok("connection", safe_url(url)), check_tls(url)]
        findings += _guarded("user", lambda: [check_default_user(url, settings.prefix)])
        for node in primaries(client):
            findings += _guarded("server", partial(check_server_of, node))
            findings += _guarded("user", partial(check_replay, node, settings.prefix))
        findings += _guarded("functions", lambda: [check_functions(client, settings.prefix)])
        findings += _guarded("functions", lambda: check_other_builds(client))
        findings += _guarded("bus", lambda: check_bus(client, url, settings))
        findings += _guarded("files", lambda: check_worker_problems(client, settings.prefix))
        findings += _guarded("keys", lambda: check_keys(client, settings.prefix))
        findings += _guarded("acl", lambda: [check_rights(client, settings.prefix, role)])
        return findings
    finally:
        client.close()


def _guarded(check: str, run: Callable[[], Iterable[Finding]]) -> list[Finding]:
    try:
        with redis_errors():
            return list(run())
    except EventBusError as problem:
        return [failed(check, problem)]
