"""The faults of the soak: each begins, lasts a while that chance decides, and is over when its method returns."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable

import pytest

from eventbus.broker.connection.connect import make_client
from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.broker.functions import publish_command
from eventbus.broker.transport import PublishRequest
from eventbus.model.encoding.wire import pack_batch
from tests.faults.machine import Clock, slow_fsync
from tests.faults.process_nemesis import ProcessNemesis
from tests.faults.proxy import Mode, Proxy
from tests.faults.scene import Scene, until
from tests.support.ports import free_port

#: of the server, and of every replica that takes its place: it writes always, so that nothing at all may be lost
CONFIG = {"appendfsync": "always", "busy-reply-threshold": "500", "repl-diskless-sync-delay": "0"}


def on_a_port() -> dict[str, str]:
    """A server that a replica can follow."""
    return CONFIG | {"port": str(free_port()), "bind": "127.0.0.1"}


class Nemesis(ProcessNemesis):
    """Knows every fault of a server and of the line to it as well. *left_out*: those that this machine cannot do.

    *port*: of the scene's server.
    """

    def __init__(self, scene: Scene, line: Proxy, chance: random.Random, port: str) -> None:
        super().__init__(scene, lambda: line.url, chance)
        self._line = line
        self._port = port
        self._clock = Clock(scene.folder) if shutil.which("cc") else None
        self._scene.worker_env = self._clock.env if self._clock else {}
        self.poisoned = 0  #: events that must be in the dead letter
        self.left_out = [] if self._clock else ["workers' clocks: cc is not installed"]
        self.faults |= {
            "server killed": self.kill_server,
            "server frozen": self.freeze_server,
            "server busy": self.keep_busy,
            "memory full": self.fill_memory,
            "functions flushed": self.flush_functions,
            "key of the wrong type": self.spoil_key,
            "failover": self.fail_over,
            "poison": self.poison,
            **({"workers' clocks": self.move_clocks} if self._clock else {}),
            **({"slow fsync": self.slow_disk} if self._can_slow() else {}),
            **{f"network: {mode}": self._bad_line(mode) for mode in Mode if mode is not Mode.PASS},
        }

    def kill_server(self) -> None:
        self._scene.kill_server()
        time.sleep(self._chance.uniform(0, 2))
        self._scene.restart_server()

    def freeze_server(self) -> None:
        pid = self._scene.server.pid or 0
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self._chance.uniform(0.5, 7))  # beyond the time a reply may take, or not
        os.kill(pid, signal.SIGCONT)

    def keep_busy(self) -> None:
        script = "local s = redis.call('TIME')[1] + 2 while tonumber(redis.call('TIME')[1]) < s do end return 1"
        self._scene.client.eval(script, 0)

    def fill_memory(self) -> None:
        self._scene.client.config_set("maxmemory", self._scene.client.info("memory")["used_memory"] + 100_000)
        time.sleep(self._chance.uniform(1, 3))
        self._scene.client.config_set("maxmemory", 0)

    def flush_functions(self) -> None:
        for _ in range(self._chance.randrange(1, 20)):
            self._scene.client.function_flush("SYNC")
            time.sleep(0.05)

    def spoil_key(self) -> None:
        keys = self._scene.keys
        events = keys.changes_of("events")
        key = self._chance.choice([keys.incoming, keys.meta, events, keys.index_expiry])
        # At once: a key that is nowhere for a moment would be made anew, as one that was destroyed is.
        self._scene.client.pipeline(transaction=True).rename(key, key + b":aside").set(key, "not yours").execute()
        time.sleep(self._chance.uniform(0.1, 2))
        self._scene.client.rename(key + b":aside", key)

    def _bad_line(self, mode: Mode) -> Callable[[], None]:
        def spoil_line() -> None:
            self._line.mode = mode
            if mode is Mode.REFUSE:
                self._line.hang_up()
            time.sleep(self._chance.uniform(1, 6))
            self._line.mode = Mode.PASS

        return spoil_line

    def fail_over(self) -> None:
        """A replica that has everything takes the place of its master, which is killed in the middle of it."""
        config = on_a_port()
        replica = EmbeddedServer(self._scene.folder / f"r{config['port']}", config=config)
        replica.start()
        with make_client(replica.url or "") as client:
            client.replicaof("127.0.0.1", self._port)
            until(lambda: client.info("replication").get("master_link_status") == "up", 60)
            time.sleep(self._chance.uniform(0.2, 1))
            self._scene.kill_server()
            client.replicaof("NO", "ONE")
        self._line.switch(replica.url or "")
        self._scene.server, self._port = replica, config["port"]
        self._scene.go_to(replica.url or "")

    def poison(self) -> None:
        """Batches of one event that nobody can read."""
        for _ in range(self._chance.randrange(1, 10)):
            self.poisoned += 1
            producer = f"poison{self.poisoned}"
            body = pack_batch(producer, 1, [self._chance.randbytes(3) + b"\xc1"])
            request = PublishRequest(0, producer, 1, 1, body, "", 0, ())
            self._scene.client.execute_command(*publish_command(self._scene.keys, [request], 1 << 40))

    def move_clocks(self) -> None:
        assert self._clock
        self._clock.move(self._chance.choice([-300, 300]))
        time.sleep(self._chance.uniform(1, 5))
        self._clock.move(0)

    def slow_disk(self) -> None:
        with slow_fsync(self._scene.server.pid or 0, 0.3):
            time.sleep(self._chance.uniform(1, 4))

    def _can_slow(self) -> bool:
        try:
            with slow_fsync(self._scene.server.pid or 0, 0):
                return True
        except pytest.skip.Exception as skipped:
            self.left_out.append(f"slow fsync: {skipped.msg}")
            return False
