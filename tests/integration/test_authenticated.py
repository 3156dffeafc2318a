"""Pods from the bus need a bus for known users alone: what a real server says of us counts, not our url."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventbus.agent.pods.options import PodOptions
from eventbus.broker.acl import Role, acl_setuser
from eventbus.broker.bus import open_bus
from eventbus.broker.connection.connect import make_client
from eventbus.broker.health.user_checks import accepts_nameless
from eventbus.errors import ConfigError
from eventbus.settings import Settings
from tests.functions.cluster import Cluster
from tests.functions.servers import own_server
from tests.support.ports import free_ports

PASSWORD = "a-password-of-this-test"
OPTIONS = PodOptions(from_bus=("jobs",), allow_commands=("/opt/jobs/*",))


class Server:
    """A server with a bus, an operator and a port; as an administrator sees it."""

    def __init__(self, admin: Any, port: int) -> None:
        self._admin = admin
        self.plain, self.password, self.operator = (
            f"redis://{who}127.0.0.1:{port}" for who in ("", f":{PASSWORD}@", f"agent-1:{PASSWORD}@")
        )
        open_bus(self.plain, Settings())
        admin.execute_command("ACL", "SETUSER", *acl_setuser(Role.OPERATOR, user="agent-1", password=PASSWORD))

    def default_user(self, *rules: str) -> None:
        self._admin.execute_command("ACL", "SETUSER", "default", *rules)

    @staticmethod
    def check(url: str) -> None:
        OPTIONS.check_bus(open_bus(url, Settings()))


@pytest.fixture
def server(short_path: Path) -> Iterator[Server]:
    (port,) = free_ports(1)
    settings = {"port": str(port), "bind": "127.0.0.1"}
    with own_server(short_path / "s", None, **settings) as started, make_client(str(started.url)) as admin:
        made = Server(admin, port)
        try:
            yield made
        finally:
            made.default_user("on", "nopass")


def test_a_server_that_lets_everybody_in_brings_no_pods(server: Server) -> None:
    with pytest.raises(ConfigError, match="has us as the user default") as caught:
        server.check(server.plain)
    assert "eventbus acl --role operator" in str(caught.value)


def test_the_one_password_that_everybody_has_is_no_user(server: Server) -> None:
    server.default_user("resetpass", f">{PASSWORD}")
    with pytest.raises(ConfigError, match="has us as the user default"):
        server.check(server.password)


def test_a_user_of_our_own_is_not_enough_where_others_need_none(server: Server) -> None:
    with pytest.raises(ConfigError, match="accepts connections without a name"):
        server.check(server.operator)


@pytest.mark.parametrize("rules", [("off",), ("resetpass", ">another")], ids=["off", "with a password"])
def test_a_user_of_our_own_where_nobody_comes_without_is(server: Server, rules: tuple[str, ...]) -> None:
    server.default_user(*rules)
    server.check(server.operator)


def test_a_node_of_a_cluster_is_open_also_if_another_node_has_the_key(short_path: Path) -> None:
    with Cluster(short_path, primaries=2, replicas=False) as cluster:
        assert accepts_nameless(cluster.url, "eb")
        with cluster.node(0) as node:
            node.execute_command("ACL", "SETUSER", "default", "resetpass", f">{PASSWORD}")
        assert not accepts_nameless(cluster.url, "eb")


def test_a_socket_counts_if_its_folder_is_ours_alone(short_path: Path) -> None:
    folder = short_path / "s"
    with own_server(folder) as started:
        Server.check(str(started.url))
        short_path.chmod(0o755)
        folder.chmod(0o755)
        try:
            with pytest.raises(ConfigError, match="has us as the user default"):
                Server.check(str(started.url))
        finally:
            folder.chmod(0o700)
