"""docs/production.md done word by word on three hosts: Redis with users, workers on two, a program, people who look.

Departures: eventbus is there instead of installed by pip (`test_install.py` does that), and what systemd does with the
unit is done from the unit's own lines, since there is no systemd on these hosts.
"""

from __future__ import annotations

import configparser
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventbus.broker.embedded.server_binary import find_binary
from tests.support.hosts import ROOT, Host, Hosts, why_none
from tests.waiting import eventually

PAGE = (ROOT / "docs" / "production.md").read_text()
UNIT = "eventbus-worker@.service"
#: What the page says that doctor warns of, until there is TLS.
UNENCRYPTED = ["tls"]
PATH = {"PATH": "/opt/eventbus/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


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


@pytest.mark.volume
def test_the_page_of_three_hosts_ends_with_a_working_bus(hosts: tuple[Host, Host, Host], tmp_path: Path) -> None:
    redis, first, second = hosts
    start_redis(redis, first, tmp_path)

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
    for role in ("metrics", "deploy"):
        assert troubles(first.run(doctor, env=PATH | user(role), code=1)) == UNENCRYPTED

    first.die()
    again = record.replace("worker-1", "worker-2")
    second.run(again, env=PATH | variables_of(variables))
    eventually(lambda: "production page" in second.run(get.replace("worker-1", "worker-2"), env=PATH))


def troubles(page: str) -> list[str]:
    """Return the checks of the doctor's page that found something wrong."""
    return re.findall(r"(?m)^(?:warning|error) +(\w+)", page)


def start_redis(redis: Host, admin: Host, folder: Path) -> None:
    """Steps 1 and 2: the configuration, the users, and a server that has both."""
    (configuration,) = blocks("1. Redis")
    install, make_users = blocks("2. Users")
    assert [line.split()[0] for line in install.splitlines()] == ["python3", "/opt/eventbus/bin/pip", "export"]
    admin.run(f"{install.splitlines()[-1]}\n{make_users}", env=PATH)
    redis.put("/etc/redis/users.acl", admin.run("cat users.acl"))
    redis.put("/etc/redis/redis.conf", configuration)
    redis.launch(f"exec {find_binary().path} /etc/redis/redis.conf", folder / "redis.log")
    eventually(lambda: "Ready to accept connections" in (folder / "redis.log").read_text())


def start_workers(host: Host, folder: Path) -> None:
    """Step 4, up to what systemctl is told; then what systemd would do."""
    lines = blocks("4. Workers")[0].splitlines()
    mine = [line for line in lines if not line.startswith("systemctl")]
    host.run("\n".join(mine), env=PATH)
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    text = host.run(f"cat '/etc/systemd/system/{UNIT}'")
    unit.read_string(text)
    service = unit["Service"]
    files = re.findall(r"(?m)^EnvironmentFile=(-?)(.+)$", text)
    assert [optional for optional, _ in files] == ["", "-"]
    host.run(f"install -d -o {service['User']} -g {service['Group']} /var/lib/{service['StateDirectory']}", env=PATH)
    (enabled,) = (line for line in lines if line.startswith("systemctl enable --now "))
    for name in enabled.split()[3:]:
        kind = name.partition("@")[2]
        command = service["ExecStart"].replace("%i", kind)
        read = [f"{'! [ -e F ] || ' if optional else ''}. F".replace("F", path) for optional, path in files]
        # +u: systemd, too, leaves out a variable that has no value.
        who = f"--reuid={service['User']} --regid={service['Group']} --init-groups"
        script = f"set -a +u; {'; '.join(read).replace('%i', kind)}; exec setpriv {who} {command}"
        host.launch(script, folder / f"{host.name}-{name}.log")


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
