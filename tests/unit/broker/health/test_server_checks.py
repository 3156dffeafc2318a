"""The doctor's judgement, from what a server says: every wrong configuration is named with its severity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eventbus.broker.functions import GroupPolicy
from eventbus.broker.health.bus_checks import check_memory, check_partitions, needed_bytes
from eventbus.broker.health.doctor import (
    check_clock,
    check_eviction,
    check_persistence,
    check_replication,
    check_tls,
    check_version,
    is_local,
)
from eventbus.broker.health.findings import Finding, Severity, error, ok, warning, worst
from eventbus.broker.health.status import Level
from eventbus.cli.this_machine import judge_disk
from eventbus.settings import MIB, Options

OK, WARNING, ERROR = Severity.OK, Severity.WARNING, Severity.ERROR


@pytest.mark.parametrize(
    ("info", "severity"),
    [
        ({"redis_version": "6.2.14"}, ERROR),
        ({"redis_version": "7.0.0"}, OK),
        ({"redis_version": "8.2.1"}, OK),
        ({"redis_version": "7.2.4", "valkey_version": "7.2.9"}, ERROR),
        ({"redis_version": "7.2.4", "valkey_version": "8.0.0"}, OK),
    ],
)
def test_the_version_is_that_of_the_server_s_own_kind(info: dict[str, Any], severity: Severity) -> None:
    assert check_version(info).severity is severity


@pytest.mark.parametrize(("policy", "severity"), [("noeviction", OK), ("allkeys-lru", ERROR), ("volatile-ttl", ERROR)])
def test_only_a_server_that_evicts_nothing_will_do(policy: GroupPolicy, severity: Severity) -> None:
    assert check_eviction({"maxmemory_policy": policy}).severity is severity


@pytest.mark.parametrize(
    ("info", "config", "severity", "word"),
    [
        ({"aof_enabled": 1}, {"appendfsync": "always"}, OK, "always"),
        ({"aof_enabled": 1}, {"appendfsync": "everysec"}, OK, "everysec"),
        ({"aof_enabled": 1}, {"appendfsync": "no"}, WARNING, "crash of the machine"),
        ({"aof_enabled": 1}, {}, OK, "may not ask"),
        ({"aof_enabled": 0}, {"save": "3600 1"}, WARNING, "snapshot"),
        ({"aof_enabled": 0}, {}, WARNING, "snapshot"),
        ({"aof_enabled": 0}, {"save": ""}, ERROR, "every event"),
        ({"aof_enabled": 1, "aof_last_write_status": "err"}, {"appendfsync": "always"}, ERROR, "could not write"),
    ],
)
def test_persistence_is_judged_by_what_a_restart_loses(
    info: dict[str, Any], config: dict[str, str], severity: Severity, word: str
) -> None:
    found = check_persistence(info, config)
    assert (found.severity, word in found.message) == (severity, True)


@pytest.mark.parametrize(
    ("info", "severities", "word"),
    [
        ({"role": "master", "connected_slaves": 0}, [], ""),
        ({"role": "master", "connected_slaves": 0, "cluster_enabled": 1}, [WARNING], "stand still"),
        ({"role": "master", "connected_slaves": 1}, [WARNING], "min-replicas-to-write is 0"),
        ({"role": "master", "connected_slaves": 2, "min_slaves_good_slaves": 2}, [OK], "2 replicas"),
        ({"role": "slave", "master_host": "10.0.0.7", "master_port": 6379}, [ERROR], "10.0.0.7:6379"),
    ],
)
def test_what_a_failover_would_lose_is_told(info: dict[str, Any], severities: list[Severity], word: str) -> None:
    found = check_replication(info)
    assert [finding.severity for finding in found] == severities
    assert all(word in finding.message for finding in found)


@pytest.mark.parametrize(("skew", "severity"), [(0.4, OK), (-1.9, OK), (5, WARNING), (-3600, ERROR)])
def test_a_clock_that_is_off_is_named(skew: float, severity: Severity) -> None:
    assert check_clock(skew).severity is severity


def test_the_direction_of_a_clock_error_is_reported() -> None:
    assert "100 s fast, compared" in check_clock(100).message
    assert "100 s slow, compared" in check_clock(-100).message


@pytest.mark.parametrize(
    ("memory", "machine", "severity"),
    [
        (Level(10 * MIB, 2000 * MIB), None, OK),
        (Level(10 * MIB, 500 * MIB), None, WARNING),
        (Level(1900 * MIB, 2000 * MIB), None, ERROR),
        (Level(10 * MIB, None), 8000 * MIB, OK),
        (Level(10 * MIB, None), 800 * MIB, WARNING),
        (Level(None, None), None, WARNING),
    ],
)
def test_memory_is_held_against_the_bounds(memory: Level, machine: int | None, severity: Severity) -> None:
    assert check_memory(memory, machine, 700 * MIB).severity is severity


@pytest.mark.parametrize(
    ("partitions", "nodes", "few"), [(1, 1, False), (1, 3, True), (11, 3, True), (12, 3, False), (64, 16, False)]
)
def test_too_few_partitions_for_a_cluster_are_named(partitions: int, nodes: int, few: bool) -> None:
    found = [(finding.check, finding.severity) for finding in check_partitions(partitions, nodes)]
    assert found == ([("partitions", Severity.WARNING)] if few else [])


def test_the_bounds_of_every_partition_count() -> None:
    options = Options()
    streams = options.incoming_bytes + options.changes_bytes + options.dead_bytes
    assert needed_bytes(options, 1) > streams
    assert needed_bytes(options, 16) == 16 * needed_bytes(options, 1)


@pytest.mark.parametrize(
    ("url", "severity"),
    [
        ("redis://10.1.2.3:6379/0", WARNING),
        ("rediss://10.1.2.3:6379/0", OK),
        ("rediss://10.1.2.3:6379/0?ssl_cert_reqs=none", WARNING),
        ("rediss://10.1.2.3:6379/0?ssl_check_hostname=false", WARNING),
        ("rediss://10.1.2.3:6379/0?ssl_check_hostname=true", OK),
        ("redis://127.0.0.1:6379,10.1.2.3:6379", WARNING),
        ("redis://127.0.0.1:6379,localhost:6380", OK),
        ("redis+sentinel://127.0.0.1/mymaster/0", OK),
        ("rediss+sentinel://10.1.2.3/mymaster/0", OK),
        ("redis://127.0.0.1:6379/0", OK),
        ("redis://[::1]:6379/0", OK),
        ("redis://localhost:6379/0", OK),
        ("unix:///run/redis.sock", OK),
    ],
)
def test_a_network_without_tls_is_named(url: str, severity: Severity) -> None:
    assert check_tls(url).severity is severity


def test_a_host_that_nobody_knows_is_not_here() -> None:
    assert not is_local("redis://no-such-host.invalid:6379")


@pytest.mark.parametrize(("free", "severity"), [(50_000 * MIB, OK), (500 * MIB, WARNING), (10 * MIB, ERROR)])
def test_a_disk_that_fills_is_named(free: int, severity: Severity) -> None:
    assert judge_disk(Path("/state"), free).severity is severity


@pytest.mark.parametrize(
    ("findings", "severity"),
    [
        ([], OK),
        ([ok("a", "")], OK),
        ([ok("a", ""), warning("b", "", "")], WARNING),
        ([error("c", "", ""), warning("b", "", "")], ERROR),
    ],
)
def test_the_exit_code_is_the_worst_severity(findings: list[Finding], severity: Severity) -> None:
    assert worst(findings) is severity
    assert (int(OK), int(WARNING), int(ERROR)) == (0, 1, 2)
