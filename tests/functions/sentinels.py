"""A primary with replicas, and sentinels that watch it, on loopback, made of the embedded server's program."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path
from typing import Any

from eventbus.broker.embedded.server import EmbeddedServer, find_binary
from tests.functions.nodes import Nodes, client_of, wait_for
from tests.support.ports import free_ports

NAME = "main"
#: Short, so that a failover takes two seconds.
DOWN_AFTER_MS = 1000


class Watched(Nodes):
    """A primary, *replicas* of it and three sentinels; they end with the block. Server 0 is the primary at first."""

    def __init__(
        self,
        folder: Path,
        *,
        replicas: int = 2,
        sentinels: int = 3,
        down_after_ms: int = DOWN_AFTER_MS,
        **config: str,
    ) -> None:
        ports = free_ports(1 + replicas + sentinels)
        self.sentinel_ports = ports[1 + replicas :]
        self._folder = folder
        self._down_after_ms = down_after_ms
        common = {"bind": "127.0.0.1", "repl-diskless-sync-delay": "0"} | config
        following = {"replicaof": f"127.0.0.1 {ports[0]}"}
        servers = [
            EmbeddedServer(folder / f"r{i}", config=common | {"port": str(port)} | (following if i else {}))
            for i, port in enumerate(ports[: 1 + replicas])
        ]
        super().__init__(servers, ports[: 1 + replicas])

    def start(self) -> str:
        """Start everything, and wait until all have found each other. Returns: the url."""
        super().start()
        wait_for(lambda: self._info(0)["connected_slaves"] == len(self.ports) - 1)
        for port in self.sentinel_ports:
            self._start_sentinel(port)
        for port in self.sentinel_ports:
            wait_for(partial(self._sees_all, port))
        return self.url

    @property
    def url(self) -> str:
        """It names the sentinels."""
        return f"redis+sentinel://{','.join(f'127.0.0.1:{port}' for port in self.sentinel_ports)}/{NAME}/0"

    def server_url(self, number: int) -> str:
        return f"redis://127.0.0.1:{self.ports[number]}"

    def primary(self) -> int:
        """Which server the first sentinel names."""
        with _client(self.sentinel_ports[0]) as client:
            _, port = client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)
        return self.ports.index(int(port))

    def has_failed_over(self) -> bool:
        """Another server is primary, and says so."""
        return self.primary() != 0 and self._info(self.primary())["role"] == "master"

    def _info(self, number: int) -> dict[str, Any]:
        with _client(self.ports[number]) as client:
            found: dict[str, Any] = client.info("replication")
            return found

    def _sees_all(self, port: int) -> bool:
        with _client(port) as client:
            (found,) = client.execute_command("SENTINEL", "MASTERS")
        said = dict(zip(found[::2], found[1::2], strict=True))
        others, replicas = len(self.sentinel_ports) - 1, len(self.ports) - 1
        return (int(said[b"num-other-sentinels"]), int(said[b"num-slaves"])) == (others, replicas)

    def _start_sentinel(self, port: int) -> None:
        config = self._folder / f"s{port}.conf"
        quorum = len(self.sentinel_ports) // 2 + 1
        config.write_text(
            f"port {port}\nbind 127.0.0.1\ndir {self._folder}\nprotected-mode no\n"
            f"sentinel monitor {NAME} 127.0.0.1 {self.ports[0]} {quorum}\n"
            f"sentinel down-after-milliseconds {NAME} {self._down_after_ms}\nsentinel failover-timeout {NAME} 5000\n"
        )
        words = [str(find_binary().path), str(config), "--sentinel"]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._stack.callback(process.wait)
        self._stack.callback(process.terminate)


def _client(port: int) -> Any:
    return client_of(port, protocol=2)
