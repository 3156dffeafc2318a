"""A PostgreSQL server for tests and benchmarks: the one that is named, else a private cluster of what is installed."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, LiteralString
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
from psycopg import sql

from tests.support.ports import free_port

#: A server of one's own for the tests, as a superuser; each test makes a database in it.
URL_VARIABLE = "EVENTBUS_TEST_POSTGRES_URL"


class NoPostgres(Exception):
    """No server is named, and none can be started here."""


class PostgresServer:
    """A private cluster in a temporary folder, on a unix socket and on 127.0.0.1 with the password *password*.

    PostgreSQL refuses to run as root, so that root starts it as the user `postgres`, else `nobody`.

    Args:     durable: with fsync, as users run it; tests go without.
    """

    def __init__(self, *, durable: bool = False) -> None:
        self.programs = find_programs()
        self.folder = Path(tempfile.mkdtemp(prefix="ebpg"))
        self.password = secrets.token_hex(8)
        self.database = "postgres"  #: the one that `url` names if it is not told which
        self.port = free_port()
        self._durable = durable
        self._user = _unprivileged() if os.geteuid() == 0 else None

    def start(self) -> str:
        """Make the cluster and run it. Returns: the URL of its superuser, on the unix socket, without password."""
        secret = self.folder / "password"
        secret.write_text(self.password)
        if self._user is not None:
            for path in (self.folder, secret):
                os.chown(path, self._user.pw_uid, self._user.pw_gid)
        options = ["-A", "scram-sha-256", "--auth-local=trust", f"--pwfile={secret}", "--no-sync", "-E", "UTF8"]
        self._run("initdb", "-D", self._data, "-U", "tester", "--locale=C", *options)
        self.restart()
        return self.url()

    def restart(self) -> None:
        """Start it; the folder is as the last run left it."""
        fast = "" if self._durable else "-c fsync=off -c full_page_writes=off"
        network = f"-k {self.folder} -h 127.0.0.1 -p {self.port}"
        self._run("pg_ctl", "-D", self._data, "-w", "-l", str(self.folder / "log"), "-o", f"{network} {fast}", "start")

    def stop(self, mode: str = "immediate") -> None:
        self._run("pg_ctl", "-D", self._data, "-w", "-m", mode, "stop")

    def close(self) -> None:
        """Stop it, if it runs, and remove its folder."""
        if self.runs:
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def runs(self) -> bool:
        return (self.folder / "data" / "postmaster.pid").exists()

    def url(self, database: str = "", *, password: str | None = None, port: int | None = None) -> str:
        """On the unix socket; over TCP if *password* or *port* (a proxy's, say) is given."""
        database = database or self.database
        if password is None and port is None:
            return f"postgresql://tester@/{database}?host={quote(str(self.folder), safe='')}&port={self.port}"
        return f"postgresql://tester:{password or self.password}@127.0.0.1:{port or self.port}/{database}"

    def signal_backend(self, pid: int, number: signal.Signals) -> None:
        """Send a signal to one of its processes."""
        os.kill(pid, number)

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    def _run(self, program: str, *words: str) -> None:
        user: dict[str, Any] = {}
        if self._user is not None:
            user = {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}
        environ: Mapping[str, str] = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}
        done = subprocess.run(
            [str(self.programs / program), *words],
            cwd=self.folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # the server inherits it: a pipe would never end
            stderr=subprocess.DEVNULL,
            timeout=60,
            check=False,
            **user,
        )
        if done.returncode:
            log = self.folder / "log"
            raise NoPostgres(f"{program} ended with {done.returncode}: {log.read_text() if log.exists() else ''}")


@contextmanager
def a_database(server_url: str) -> Iterator[str]:
    """A fresh database on that server. Yields: its URL."""
    name = f"eb_{secrets.token_hex(6)}"
    _run_alone(server_url, "CREATE DATABASE {}", name)
    try:
        yield urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
    finally:
        _run_alone(server_url, "DROP DATABASE {} WITH (FORCE)", name)


def empty(url: str) -> None:
    """Remove all that is in this database, and whoever is still connected to it: quicker than to make another one."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        connection.execute("SET client_min_messages = warning")
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public; GRANT USAGE ON SCHEMA public TO PUBLIC")


def _run_alone(server_url: str, query: LiteralString, name: str) -> None:
    """On a connection of its own: the server may be stopped and started in between."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(sql.SQL(query).format(sql.Identifier(name)))


def find_programs() -> Path:
    """The folder with initdb: Debian's newest, else the one on PATH. Raises: NoPostgres."""
    debian = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if debian:
        return max(debian, key=lambda path: int(path.parent.name))
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    raise NoPostgres(f"no initdb here (Debian: apt install postgresql), and {URL_VARIABLE} is not set")


def _unprivileged() -> pwd.struct_passwd:
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]
