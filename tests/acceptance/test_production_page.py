"""docs/production.md done word by word on three hosts: Redis with users, workers on two, a program, people who look.

Then Redis restarts, its users are printed again, and a backup is made and restored, by the page's blocks.

Departures: eventbus is there instead of installed by pip (`test_wheel.py` does that), and what systemd does with a
unit is done from the unit's own lines, since there is no systemd on these hosts.
"""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventbus.broker.build import build
from eventbus.broker.embedded.server import ServerBinary, find_binary, inspect_binary
from eventbus.broker.health.bus_checks import needed_bytes
from eventbus.settings import MIB, Options
from tests.support.build_tree import BuildTree
from tests.support.hosts import ROOT, Host, Hosts, why_none
from tests.waiting import eventually

PAGE = (ROOT / "docs" / "production.md").read_text()
UNIT = "eventbus-worker@.service"
#: What the page says that doctor warns of, until there is TLS.
UNENCRYPTED = ["tls"]
PATH = {"PATH": "/opt/eventbus/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
CONFIGURATION = "/etc/redis/redis.conf"


def blocks(section: str) -> list[str]:
    """Return the fenced blocks below a heading of the page."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[tuple[Host, Host, Host]]:
    if reason := why_none():
        pytest.skip(reason)
    with Hosts(("redis-1", "worker-1", "worker-2"), tmp_path) as made:
        redis, first, second = made
        yield redis, first, second


def server_of(kind: str) -> ServerBinary:
    """Return the oldest Redis that the page names, from PATH, or Valkey."""
    if kind == "valkey":
        return find_binary()
    path = shutil.which("redis-server")
    found = inspect_binary(Path(path)) if path else None
    if found is None or found.kind != "redis":
        pytest.skip("no redis-server on PATH")
    return found


class Redis:
    """The service `redis-server` on its host, which systemd would run as the user `redis`."""

    def __init__(self, host: Host, binary: ServerBinary, folder: Path) -> None:
        self.host = host
        self._binary = binary
        self._folder = folder
        self._starts = 0
        host.run("id redis > /dev/null || useradd --system redis; rm -rf /var/lib/redis /etc/redis", env=PATH)
        host.run("install -d -o redis -g redis /var/lib/redis; install -d /etc/redis", env=PATH)

    def run(self, block: str) -> None:
        """Run a block of the page on the host of Redis; do what systemd does where it calls systemctl."""
        lines: list[str] = []
        for line in block.splitlines():
            if line.startswith("systemctl "):
                self.host.run("\n".join(lines), env=PATH)
                lines = []
                _, verb, name = line.split()
                assert name == "redis-server"
                if verb in ("stop", "restart") and self._starts:
                    self._stop()
                if verb in ("start", "restart"):
                    self._start()
            else:
                lines.append(line)
        self.host.run("\n".join(lines), env=PATH)

    def _start(self) -> None:
        self._starts += 1
        log = self.log
        who = "setpriv --reuid=redis --regid=redis --init-groups"
        program = f"echo $$ > redis.pid; exec {who} {self._binary.path} {CONFIGURATION}"
        self.host.launch(program, log)
        eventually(lambda: "Ready to accept connections" in log.read_text())

    def _stop(self) -> None:
        self.host.run("kill $(cat redis.pid); while kill -0 $(cat redis.pid) 2> /dev/null; do sleep 0.1; done")

    @property
    def log(self) -> Path:
        """What it has written since its last start."""
        return self._folder / f"redis-{self._starts}.log"


@pytest.mark.volume
@pytest.mark.parametrize("kind", ["redis", "valkey"])
def test_the_page_of_three_hosts_ends_with_a_working_bus(
    hosts: tuple[Host, Host, Host], tmp_path: Path, kind: str
) -> None:
    server = server_of(kind)
    redis_host, first, second = hosts
    redis = Redis(redis_host, server, tmp_path)
    start_redis(redis, first)

    (make_bus,) = blocks("3. Make the bus")
    assert troubles(first.run(make_bus, env=PATH, code=1)) == UNENCRYPTED

    for host in (first, second):
        give(first, host, "worker")
        host.put(f"{host.home}/{UNIT}", (ROOT / "docs" / "files" / UNIT).read_text())
        start_workers(host, tmp_path)

    variables, people = blocks("5. Programs")
    give(first, second, "producer", "/etc/eventbus/producer.password")
    second.put(f"{second.home}/backup.py", f"def save() -> None: ...\n{plain_script()}")
    second.run("/opt/eventbus/bin/python backup.py", env=variables_of(variables))

    for host in (first, second):
        give(first, host, "reader", f"{host.home}/.eventbus-reader")
    eventually(lambda: "Completed" in first.run(people, env=PATH))
    assert "Started" in second.run(people, env=PATH)

    record, get, status, doctor = blocks("6. See that it works")[0].splitlines()
    first.run(record, env=PATH | user("producer"))
    eventually(lambda: "from the production page" in first.run(get, env=PATH))
    assert "sink" in first.run(status, env=PATH | user("metrics"))
    for role in ("metrics", "deploy", "admin"):
        assert troubles(first.run(doctor, env=PATH | user(role), code=1)) == UNENCRYPTED
    needed = f"{needed_bytes(Options(), 1) // MIB} MiB"
    assert needed in first.run(doctor, env=PATH | user("metrics"), code=1)
    assert f"a partition needs up to {needed}" in PAGE

    start_exporter(first, tmp_path)

    history = Around(first, second, record, get, doctor)
    history.outlives("restart", lambda: redis.run("systemctl restart redis-server"))
    upgrade = Upgrade(redis, (first, second), tmp_path)
    history.outlives("upgrade", upgrade.go_forward)
    history.outlives("rollback", upgrade.go_back)
    history.outlives("end of the rollback", upgrade.tidy_up)
    back_up, restore = blocks("Backup and restore")
    give(first, redis_host, "admin")
    history.outlives("backup", lambda: redis.run(back_up), kept=True)
    history.outlives("restore", lambda: redis.run(restore), restored=True)

    first.die()
    again = record.replace("worker-1", "worker-2")
    second.run(again, env=PATH | variables_of(variables))
    eventually(lambda: "production page" in second.run(get.replace("worker-1", "worker-2"), env=PATH))


def troubles(page: str) -> list[str]:
    """Return the checks of the doctor's page that found something wrong."""
    return re.findall(r"(?m)^(?:warning|error) +(\w+)", page)


class Around:
    """Watches that what people see outlives what is done to Redis."""

    def __init__(self, admin: Host, other: Host, record: str, get: str, doctor: str) -> None:
        self._admin, self._other = admin, other
        self._record, self._get, self._doctor = record, get, doctor
        self._messages: list[str] = []
        self._kept: list[str] = []

    def outlives(self, name: str, act: Callable[[], None], *, kept: bool = False, restored: bool = False) -> None:
        """Record an event, then *act*, then record another; both must be there, and doctor must have no complaint.

        Args: kept: *act* makes a backup.  restored: *act* restores it; what came since, from processes that have ended,
              is gone.
        """
        self._say(f"before the {name}")
        if kept:
            self._kept = list(self._messages)
        act()
        if restored:
            self._messages = self._kept
        self._say(f"after the {name}")
        for role in ("metrics", "deploy", "admin"):
            self._is_well(role)

    def _say(self, message: str) -> None:
        """Record an event; wait until it is shown, and each before it."""
        line = self._record.replace("from the production page", message)
        line = line.replace("Tested", "".join(word.capitalize() for word in message.split()))  # not one aggregate
        self._admin.run(line, env=PATH | user("producer"))
        self._messages.append(message)
        eventually(lambda: all(each in self._other.run(self._get, env=PATH) for each in self._messages))

    def _is_well(self, role: str) -> None:
        eventually(
            lambda: troubles(self._admin.run(self._doctor, env=PATH | user(role), code=1)) == UNENCRYPTED,
            despite=(AssertionError,),
        )


def start_redis(redis: Redis, admin: Host) -> None:
    """Steps 1 and 2: the configuration, the users, and a server that has both."""
    (configuration,) = blocks("1. Redis")
    install, make_passwords, print_users, use_users = blocks("2. Users")
    assert [line.split()[0] for line in install.splitlines()] == ["python3", "/opt/eventbus/bin/pip", "export"]
    admin.run(f"{install.splitlines()[-1]}\n{make_passwords}{print_users}", env=PATH)
    redis.host.put(CONFIGURATION, configuration)
    redis.host.put(f"{redis.host.home}/users.acl", admin.run("cat users.acl"))
    redis.run(use_users)


class Upgrade:
    """An upgrade to another build, and the way back; what pip would install is a copy of the package, changed."""

    def __init__(self, redis: Redis, workers: tuple[Host, Host], folder: Path) -> None:
        self._redis, self._workers, self._folder = redis, workers, folder
        self._admin = workers[0]
        tree = BuildTree(folder / "new", changed=True)
        blocks_of_it = blocks("Upgrade")
        install, self._load, self._print, self._use, self._forward, self._prune, self._back = blocks_of_it
        assert [line.split()[0] for line in install.splitlines()] == ["python3", "/opt/eventbus-2/bin/pip"]
        self._new, self._old = tree.build, build()
        for host in workers:
            host.run(f"mkdir -p /opt/eventbus-2/bin; cp -r {tree.folder} /opt/eventbus-2/lib")
            host.run("chmod -R a+rX /opt/eventbus-2")
            python = "PYTHONPATH=/opt/eventbus-2/lib exec /opt/eventbus/bin/python -P"
            host.put("/opt/eventbus-2/bin/eventbus", f'#!/bin/sh\n{python} -m eventbus "$@"\n')
            host.run("chmod +x /opt/eventbus-2/bin/eventbus")

    def go_forward(self) -> None:
        """Steps 2 to 4."""
        self._admin.run(self._load, env=PATH)
        self._admin.run(self._print, env=PATH)
        self._let_redis_read_users()
        self._restart_workers(self._forward, "/opt/eventbus-2/")
        self._is_used(self._new)

    def go_back(self) -> None:
        """The rollback before step 6."""
        self._restart_workers(self._back, "/opt/eventbus/")
        self._is_used(self._old)

    def tidy_up(self) -> None:
        """Step 6, of the way back: the new version's rights and functions go."""
        _, _, print_users, _ = blocks("2. Users")
        self._admin.run(print_users, env=PATH)
        self._let_redis_read_users()
        prune = self._prune.rstrip().replace("/opt/eventbus-2/", "/opt/eventbus/")
        kept = self._admin.run(f"{prune} 2>&1", env=PATH, code=1)
        assert f"build {self._new} is in use" in kept  # it was, a moment ago
        self._admin.run(f"{prune} --force", env=PATH)

    def _let_redis_read_users(self) -> None:
        self._redis.host.put(f"{self._redis.host.home}/users.acl", self._admin.run("cat users.acl"))
        give(self._admin, self._redis.host, "admin")
        self._redis.run(self._use)

    def _restart_workers(self, block: str, program: str) -> None:
        for host in self._workers:
            host.run("\n".join(line for line in block.splitlines() if not line.startswith("systemctl")), env=PATH)
            assert block.count("systemctl restart 'eventbus-worker@*'") == 1
            pattern = "' worker (sink|lifecycle)'"
            host.run(f"pkill -TERM -f {pattern}; while pgrep -f {pattern} > /dev/null; do sleep 0.1; done")
            for name in units():
                assert program in launch_unit(host, name, self._folder)

    def _is_used(self, of: str) -> None:
        listing = "/opt/eventbus/bin/eventbus functions list -o json"

        def used() -> bool:
            found = json.loads(self._admin.run(listing, env=PATH | user("admin")))
            return any(each["build"] == of and each["inUse"] for each in found)

        eventually(used)


def units() -> list[str]:
    """The units that step 4 enables."""
    (enabled,) = (line for line in blocks("4. Workers")[0].splitlines() if line.startswith("systemctl enable --now "))
    return enabled.split()[3:]


def start_workers(host: Host, folder: Path) -> None:
    """Step 4, up to what systemctl is told; then what systemd would do."""
    lines = blocks("4. Workers")[0].splitlines()
    host.run("\n".join(line for line in lines if not line.startswith("systemctl")), env=PATH)
    for name in units():
        launch_unit(host, name, folder)


def start_exporter(host: Host, folder: Path) -> None:
    """Step 7, with the user metrics."""
    lines = blocks("7. Metrics")[0].splitlines()
    assert lines.pop() == "systemctl enable --now eventbus-worker@metrics"
    host.run("\n".join(lines), env=PATH)
    launch_unit(host, "eventbus-worker@metrics", folder)
    get = "/opt/eventbus/bin/python -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:9107/metrics\").read())'"
    eventually(lambda: "eventbus_bus_up 1.0" in host.run(f"{get} 2>&1 || true", env=PATH))


def launch_unit(host: Host, name: str, folder: Path) -> str:
    """Do what systemd does to start a unit. Returns: its command."""
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    text = host.run(f"cat '/etc/systemd/system/{UNIT}'")
    unit.read_string(text)
    service = unit["Service"]
    files = re.findall(r"(?m)^EnvironmentFile=(-?)(.+)$", text)
    assert [optional for optional, _ in files] == ["", "-"]
    host.run(f"install -d -o {service['User']} -g {service['Group']} /var/lib/{service['StateDirectory']}", env=PATH)
    kind = name.partition("@")[2]
    command = service["ExecStart"].replace("%i", kind)
    read = [f"{'! [ -e F ] || ' if optional else ''}. F".replace("F", path) for optional, path in files]
    # +u: systemd, too, leaves out a variable that has no value.
    who = f"--reuid={service['User']} --regid={service['Group']} --init-groups"
    script = f"set -a +u; {'; '.join(read).replace('%i', kind)}; exec setpriv {who} {command}"
    host.launch(script, folder / f"{host.name}-{name}-{command.split('/')[2]}.log")
    return command


def give(admin: Host, host: Host, role: str, path: str = "") -> None:
    """Copy the password of *role* to *host*."""
    host.put(path or f"{host.home}/{role}.password", admin.run(f"cat {role}.password"))


def user(role: str) -> dict[str, str]:
    return {
        "EVENTBUS_REDIS_URL": f"redis://eb-{role}@redis-1:6379/0",
        "EVENTBUS_REDIS_PASSWORD_FILE": f"{role}.password",
    }


def variables_of(block: str) -> dict[str, str]:
    """Read the lines NAME=value of a block."""
    words = [shlex.split(line, comments=True)[0] for line in block.splitlines()]
    return dict((name, value) for name, _, value in (word.partition("=") for word in words))


def plain_script() -> str:
    """Return the program of `Connect your service`, A plain script."""
    found = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "connect.md").read_text(), re.DOTALL)
    assert found
    return found[1]
