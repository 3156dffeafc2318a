"""docs/redis-ha.md: its users and files make sentinels that fail over, and a bus that continues, on loopback."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from eventbus.broker.acl import Role
from tests.acceptance.programs import COMMAND, Program
from tests.support.ports import free_ports
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.findall(r"```\w*\n(.*?)```", (ROOT / "docs" / "redis-ha.md").read_text("utf-8"), re.DOTALL)
ROLES = [Role.PRODUCER, Role.READER, Role.WORKER, Role.DEPLOY, Role.ADMIN]


def block(start: str) -> str:
    """Return the only block of the page that begins so."""
    (found,) = (text for text in BLOCKS if text.startswith(start))
    return str(found)


@contextmanager
def running(*command: str, log: Path) -> Iterator[None]:
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            yield
        finally:
            process.kill()


class Site:
    """The files of three hosts in one folder, each server on a port of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.redis, self.sentinels = (ports := free_ports(6))[:3], ports[3:]

    def make_users(self) -> None:
        """Make the users of the production page, and those of this page by its block."""
        lines = []
        for role in ROLES:
            (self.folder / f"{role}.password").write_text(f"secret of {role}\n")
            options = ("--role", role, "--password-file", str(self.folder / f"{role}.password"), "--format", "aclfile")
            lines.append(subprocess.run([*COMMAND, "acl", *options], capture_output=True, text=True, check=True).stdout)
        lines.append("user default off ~* &* +@all\n")
        (self.folder / "users.acl").write_text("".join(lines))
        subprocess.run(["bash", "-e", "-c", block("for role in replica")], cwd=self.folder, check=True)

    def redis_config(self, number: int) -> Path:
        port = self.redis[number]
        data = self.folder / f"data-{port}"
        data.mkdir()
        text = block("bind 0.0.0.0").replace("0.0.0.0", "127.0.0.1").replace("6379", str(port))
        text = text.replace("/var/lib/redis", str(data)).replace("/etc/redis/", f"{self.folder}/")
        text = text.replace("REPLICA_PASSWORD", (self.folder / "replica.password").read_text().strip())
        if number:
            text += block("replicaof").replace("redis-1 6379", f"127.0.0.1 {self.redis[0]}")
        return self._write(f"redis-{port}.conf", text)

    def sentinel_config(self, number: int) -> Path:
        text = block("port 26379").replace("26379", str(self.sentinels[number]))
        text = text.replace("redis-1 6379", f"127.0.0.1 {self.redis[0]}")
        text = text.replace("SENTINEL_PASSWORD", (self.folder / "sentinel.password").read_text().strip())
        return self._write(f"sentinel-{number}.conf", text)

    def _write(self, name: str, text: str) -> Path:
        (self.folder / name).write_text(text)
        return self.folder / name

    def env(self, role: Role) -> dict[str, str]:
        (url,) = re.findall(r"redis\+sentinel://\S+", block("EVENTBUS_REDIS_URL=redis+sentinel"))
        for number, port in enumerate(self.sentinels, 1):
            url = url.replace(f"redis-{number}:26379", f"127.0.0.1:{port}")
        password = {"EVENTBUS_REDIS_PASSWORD_FILE": str(self.folder / f"{role}.password")}
        return dict(os.environ) | password | {"EVENTBUS_REDIS_URL": url.replace("eb-worker", f"eb-{role}")}

    def eventbus(self, role: Role, *words: str) -> str:
        ran = subprocess.run([*COMMAND, *words], env=self.env(role), capture_output=True, text=True, check=False)
        return ran.stdout if ran.returncode == 0 else f"exit code {ran.returncode}: {ran.stderr}"

    def sentinel(self, *words: str) -> str:
        command = ["redis-cli", "-p", str(self.sentinels[0]), "sentinel", *words, "bus"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.volume
def test_the_page_of_sentinels_ends_with_a_bus_that_outlives_a_failover(tmp_path: Path) -> None:
    if shutil.which("redis-server") is None or shutil.which("redis-cli") is None:
        pytest.skip("no redis-server and redis-cli on PATH")
    site = Site(tmp_path)
    site.make_users()
    with ExitStack() as stack:
        for number in range(3):
            config = str(site.redis_config(number))
            stack.enter_context(running("redis-server", config, log=tmp_path / f"redis-{number}.log"))
        for number in range(3):
            config = str(site.sentinel_config(number))
            log = tmp_path / f"sentinel-{number}.log"
            stack.enter_context(running("redis-server", config, "--sentinel", log=log))
        eventually(lambda: "loaded" in site.eventbus(Role.ADMIN, "functions", "load"))
        eventually(lambda: "OPTION" in site.eventbus(Role.DEPLOY, "options", "get"))  # it makes the bus
        eventually(lambda: "replicas      2 replicas" in site.eventbus(Role.DEPLOY, "doctor"))
        with Program("worker", "sink", env=site.env(Role.WORKER), folder=tmp_path):
            about = ("record", "Host/worker-1", "--message", "text", "--reason")
            eventually(lambda: "exit code" not in site.eventbus(Role.PRODUCER, *about, "Before"))
            first = str(site.redis[0])
            eventually(lambda: first in site.sentinel("get-master-addr-by-name"))
            eventually(lambda: "OK" in site.sentinel("failover"))
            eventually(lambda: first not in site.sentinel("get-master-addr-by-name"))
            eventually(lambda: "exit code" not in site.eventbus(Role.PRODUCER, *about, "FailedOver"))
            get = ("get", "events", "--for", "host/worker-1")
            eventually(lambda: all(reason in site.eventbus(Role.READER, *get) for reason in ("Before", "FailedOver")))
