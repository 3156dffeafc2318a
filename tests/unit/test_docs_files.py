"""The files that the pages offer to take fit the product: units, alert rules, dashboard, the page of settings."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from eventbus.broker.health.bus_checks import COUNT_BYTES, STORED_BYTES, needed_bytes
from eventbus.settings import MIB, Options
from eventbus.workers.cli import main
from eventbus.workers.metrics_server import COUNTERS, GAUGES
from eventbus.workers.worker import LOOK_EVERY_S

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "docs" / "files"
WORKER_METRICS = {f"eventbus_worker_{name}_total" for name in COUNTERS} | {f"eventbus_worker_{name}" for name in GAUGES}
#: tests/unit/workers/test_bus_metrics.py compares those of the page with those that are served.
METRICS = WORKER_METRICS | set(re.findall(r"eventbus_\w+", (ROOT / "docs" / "metrics.md").read_text("utf-8")))


def test_the_page_of_settings_is_current() -> None:
    ran = subprocess.run(
        [sys.executable, "docs/settings_page.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


def test_the_production_page_names_the_memory_that_doctor_computes() -> None:
    page = " ".join((ROOT / "docs" / "production.md").read_text().split())
    assert f"a partition needs up to {needed_bytes(Options(), 1) // MIB} MiB" in page
    assert f"about {STORED_BYTES / 1000:g} KB of Redis, a kept count {COUNT_BYTES / 1000:g} KB" in page


def test_the_unit_starts_a_worker_and_leaves_time_to_drain() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(FILES / "eventbus-worker@.service")
    service = unit["Service"]
    words = service["ExecStart"].split()
    assert words[1:] == ["worker", "%i", "$WORKER_OPTIONS"]
    assert (service["Type"], service["UMask"]) == ("notify", "0077")
    assert int(service["WatchdogSec"]) > 4 * LOOK_EVERY_S
    assert "worker" in main.list_commands(None)  # type: ignore[arg-type]  # it looks at none
    assert int(service["TimeoutStopSec"]) > 10
    assert service["RestartPreventExitStatus"] == "2"


def test_the_unit_that_watches_units_keeps_its_position_in_its_own_folder() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(FILES / "eventbus-watch-systemd.service")
    service = unit["Service"]
    words = service["ExecStart"].split()
    assert words[1:] == ["watch-systemd", "--state", "/var/lib/eventbus/watch-systemd", "$WATCH_OPTIONS"]
    assert (service["StateDirectory"], service["RestartPreventExitStatus"]) == ("eventbus", "2")


def test_each_import_has_a_unit_with_the_name_of_its_cluster() -> None:
    text = (FILES / "eventbus-import@.service").read_text()
    (command,) = re.findall(r"(?m)^ExecStart=\S+ (.*)$", text)
    assert command == "worker import $IMPORT_OPTIONS"
    export = (FILES / "eventbus-export@.service").read_text().replace("export", "import")
    own = ("#", "Description=", "ExecStart=")
    assert [line for line in text.splitlines() if not line.startswith(own)] == [
        line for line in export.splitlines() if not line.startswith(own)
    ]


def test_each_export_has_a_unit_with_the_name_of_its_sink() -> None:
    text, worker = (FILES / "eventbus-export@.service").read_text(), (FILES / "eventbus-worker@.service").read_text()
    (command,) = re.findall(r"(?m)^ExecStart=\S+ (.*)$", text)
    assert command == "worker export --name %i $EXPORT_OPTIONS"
    own = ("#", "Description=", "EnvironmentFile=", "ExecStart=")
    lines, common = ([line for line in unit.splitlines() if not line.startswith(own)] for unit in (text, worker))
    assert lines == common, "all else is as in the unit of the other workers"


def test_the_agents_unit_leaves_its_pods_alone_and_may_divide_its_cgroup() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(FILES / "eventbus-agent.service")
    service = unit["Service"]
    assert (service["KillMode"], service["Delegate"], service["Restart"]) == ("process", "yes", "always")
    assert service["ExecStart"].split()[1:3] == ["worker", "agent"]
    assert "--leave-pods" in service["ExecStart"].split()
    assert "NoNewPrivileges" not in service, "pods may run as other users"


@pytest.mark.parametrize(
    ("file", "called"),
    [
        ("eventbus-worker@.service", "eventbus-worker@sink.service"),
        ("eventbus-export@.service", "eventbus-export@postgres.service"),
        ("eventbus-agent.service", "eventbus-agent.service"),
    ],
)
def test_systemd_takes_the_unit(tmp_path: Path, file: str, called: str) -> None:
    verify((FILES / file).read_text(), tmp_path / called)


def test_systemd_takes_the_service_of_the_page_that_connects_one(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```ini\n(.*?)^```", (ROOT / "docs" / "connect.md").read_text(), re.DOTALL | re.MULTILINE)
    assert "ExecStart=" in text
    verify(text, tmp_path / "shop.service")


def verify(text: str, unit: Path) -> None:
    """Have systemd look at a unit; without it, what can be seen without it is seen above."""
    program = shutil.which("systemd-analyze")
    if program is None:
        return
    unit.write_text(re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={sys.executable}", text))
    ran = subprocess.run([program, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)
    assert f"{unit.name}:" not in ran.stderr, ran.stderr


def test_the_alert_rules_are_about_metrics_that_there_are() -> None:
    (group,) = yaml.safe_load((FILES / "eventbus-alerts.yaml").read_text())["groups"]
    assert {"summary", "cure"} == set.intersection(*(set(rule["annotations"]) for rule in group["rules"]))
    for rule in group["rules"]:
        named = set(re.findall(r"eventbus_\w+", rule["expr"]))
        assert named, rule
        assert named <= METRICS, rule["alert"]


def test_prometheus_fires_the_alerts_for_the_cases_that_they_are_for() -> None:
    program = shutil.which("promtool")
    if program is None:
        return
    cases = Path(__file__).with_name("eventbus-alerts.test.yaml")
    ran = subprocess.run([program, "test", "rules", cases], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_alert_has_a_case_for_prometheus() -> None:
    (group,) = yaml.safe_load((FILES / "eventbus-alerts.yaml").read_text())["groups"]
    cases = yaml.safe_load(Path(__file__).with_name("eventbus-alerts.test.yaml").read_text())["tests"]
    fired = {case["alertname"] for test in cases for case in test["alert_rule_test"] if case.get("exp_alerts")}
    assert fired == {rule["alert"] for rule in group["rules"]}


def test_the_dashboard_is_about_metrics_that_there_are() -> None:
    dashboard = json.loads((FILES / "eventbus-dashboard.json").read_text())
    named = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"eventbus_\w+", target["expr"])
    }
    assert len(named) > 6
    assert named <= METRICS


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_every_page_is_on_the_site(page: Path) -> None:
    assert f'"{page.name}"' in (ROOT / "zensical.toml").read_text()
