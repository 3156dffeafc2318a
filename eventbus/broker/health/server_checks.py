"""The doctor's checks of one server: version, eviction, persistence, clock, functions. Each makes a finding."""

from __future__ import annotations

import time
from typing import Any

from eventbus.broker import functions
from eventbus.broker.connection.connect import Client
from eventbus.broker.health.findings import Finding, error, failed, ok, warning
from eventbus.broker.keys import bus_key
from eventbus.broker.redis_errors import redis_errors, translate
from eventbus.broker.server_version import OLDEST_VERSION

#: Clocks may differ so much, seconds: ages are off by it, and `--since`. Then an hour's events look old or future.
CLOCK_WARNING_S, CLOCK_ERROR_S = 2.0, 60.0


def check_server_of(node: Any) -> list[Finding]:
    """Check version, eviction, persistence, replication and clock of one server."""
    from redis.exceptions import NoPermissionError

    with redis_errors():
        began = time.time()
        server_time = node.time()
        skew = server_time[0] + server_time[1] / 1e6 - (began + time.time()) / 2
        try:
            info: dict[str, Any] = node.info()
        except NoPermissionError:
            return [
                check_clock(skew),
                warning(
                    "server", "this user may not ask for INFO: version, eviction, persistence unknown", "give +info"
                ),
            ]
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
            "AOF is off: a restart loses what came since the last snapshot"
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
        "always": "AOF, appendfsync always: what was acknowledged is on the disk",
        "everysec": "AOF, appendfsync everysec: producers send again what a crash takes",
    }
    return ok("persistence", words.get(fsync or "", "AOF is on (appendfsync: this user may not ask)"))


def check_replication(info: dict[str, Any]) -> list[Finding]:
    """Check what a failover would lose; a server without replicas outside a cluster gives no finding."""
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
    # The server tells how many replicas are good only where it has been told how many it needs.
    if "min_slaves_good_slaves" not in info:
        problem = (
            f"{replicas} replica{several}, and min-replicas-to-write is 0: a primary that is cut off goes on taking "
            "events, and a failover throws them away; what their producers no longer hold is lost"
        )
        cure = "CONFIG SET min-replicas-to-write 1 on it and its replicas, and write it into their configuration files"
        return [warning("replicas", problem, cure)]
    return [
        ok("replicas", f"{replicas} replica{several}; without one in touch it takes nothing (min-replicas-to-write)")
    ]


def check_clock(skew_s: float) -> Finding:
    """Compare the server's clock with this machine's, from which ages are computed."""
    size = abs(skew_s)
    direction = "ahead of" if skew_s > 0 else "behind"
    if size < CLOCK_WARNING_S:
        return ok("clock", f"differs from here by {size:.1f} s at the most")
    found = error if size >= CLOCK_ERROR_S else warning
    return found("clock", f"the server is {size:.0f} s {direction} this machine", "let both follow a time server (NTP)")


def check_functions(client: Client, prefix: str) -> Finding:
    """Check that the function library is loaded, and as new as this program's."""
    from redis.exceptions import NoPermissionError, ResponseError

    cure = "run `eventbus functions load` as a user of role admin"
    try:
        build = int(client.fcall("eb2_build", 0))
    except NoPermissionError:
        return warning(
            "functions", "this user may not call eb2_build: whether they are there is unknown", "+fcall|eb2_build"
        )
    except ResponseError as problem:
        if "Function not found" not in str(problem):
            return failed("functions", translate(problem))
        with redis_errors():
            (made,) = client.hmget(bus_key(prefix), ["partitions"])  # of a hash every role may read that, and no more
        if made is None:
            return ok("functions", "not loaded yet: `eventbus functions load` does it, or opening the bus as an admin")
        return error("functions", "the server has lost them: nothing can be published or recorded", cure)
    if build < functions.BUILD:
        return warning("functions", f"build {build} is older than this program's {functions.BUILD}", cure)
    newer = f", newer than this program's {functions.BUILD}" if build > functions.BUILD else ""
    return ok("functions", f"build {build}{newer}")


def _config(node: Any, name: str) -> dict[str, str]:
    from redis.exceptions import ResponseError

    try:
        # Asked first whether it may ask: a refusal would leave a line in the server's ACL log.
        user = node.execute_command("ACL", "WHOAMI")
        if node.execute_command("ACL", "DRYRUN", user, "CONFIG", "GET", name) not in (b"OK", True):
            return {}
        found: dict[str, str] = node.config_get(name)
    except ResponseError:  # no permission, or a provider has removed the command
        return {}
    return found
