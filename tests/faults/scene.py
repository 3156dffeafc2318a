"""The scene of a fault: a server of its own, producers and workers as real processes, and the verdict at the end."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, Self

from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.connection.connect import connect, make_client
from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.broker.keys import SINK_GROUP
from eventbus.settings import Options, Settings
from eventbus.store.object_store import ObjectStore
from tests import waiting
from tests.faults.breakages import broken_library
from tests.faults.checker import Accepted, Verdict, hold_stream, judge
from tests.starting import STRICT, start

#: No event is held back, so that the stored count of every object is what has happened to it.
OPEN_FILTER = {"burst": 1_000_000, "qps": 1000.0}
TAKE_OVER_S = 1.6
SETTLE_S = 40.0
#: The end of a traceback out of a breakage that no longer fits the code. What it breaks then, it breaks by accident.
UNFIT_BREAKAGE = re.compile(
    r'breakages\.py", line \d+, in .*\n(?: {4}.*\n)*(?:Attribute|Import|Index|Key|Name|Type)Error: .*'
)

ROOT = Path(__file__).resolve().parents[2]


class Process:
    """A process of ours with its output in a file."""

    def __init__(self, arguments: list[str], env: dict[str, str], log: Path, *, afresh: bool = False) -> None:
        self.log = log
        with log.open("ab") as output:
            self._process = start(arguments, env=env, stdout=output, stderr=output, folder=ROOT, afresh=afresh)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def said(self) -> str:
        return self.log.read_text("utf-8", "replace")

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def signal(self, number: signal.Signals) -> None:
        if not self.ended:
            self._process.send_signal(number)

    def wait(self, timeout_s: float = 60) -> int:
        return self._process.wait(timeout_s)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self._process.wait(30)

    @property
    def frozen(self) -> bool:
        """Stopped by SIGSTOP."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        except OSError:
            return False


class Producing(Process):
    """A producer process, its accept-log, and what it said at its end."""

    accepted: Path

    @property
    def acknowledged(self) -> int:
        """Batches acknowledged so far."""
        return self.accepted.read_bytes().count(b"\n") if self.accepted.exists() else 0

    @property
    def events(self) -> int:
        """Events acknowledged so far."""
        log = self.accepted.read_bytes() if self.accepted.exists() else b""
        return len(log.split()) - 3 * log.count(b"\n")

    def go_on(self) -> None:
        """Wait until some more is acknowledged, or until it is clear that nothing will be."""
        before = self.acknowledged
        reached(lambda: self.acknowledged > before + 20, 10)

    @property
    def end(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.accepted.with_suffix(".end").read_text())
        return found

    @property
    def losses(self) -> dict[str, int]:
        found: dict[str, int] = self.end["losses"]
        return found


class Server(Protocol):
    """The methods of a server that a scene needs; see `EmbeddedServer`."""

    def start(self) -> str: ...

    def stop(self) -> None: ...

    def running(self) -> bool: ...

    @property
    def pid(self) -> int | None: ...


class Scene:
    """One server, one bus. Everything started here ends with the block.

    Args: lua: protections of the library that are off (a control run).  config: of the server.  options: of the bus.
          hold: keep the whole stream for the judge.  server: another one than an embedded server of its own.
    """

    def __init__(
        self,
        folder: Path,
        *,
        lua: str = "",
        config: dict[str, str] | None = None,
        hold: bool = True,
        server: Server | None = None,
        partitions: int = 1,
        **options: Any,
    ) -> None:
        self.folder = folder
        self.prefix = "f" + secrets.token_hex(4)
        self.server: Server = server or EmbeddedServer(folder / f"s{secrets.token_hex(3)}", config=config)
        self._lua = lua
        self._hold = hold
        self._partitions = partitions
        self._options = Options(**(OPEN_FILTER | options))
        self._processes: list[Process] = []
        self.producers: list[Producing] = []
        self.worker_env: dict[str, str] = {}  #: more for every worker

    def __enter__(self) -> Self:
        self.url = self.server.start()
        self.client: Any = connect(self.url, block_ms=1000)
        if self._lua:
            self.client.function_load(broken_library(self._lua), replace=True)
        settings = Settings(prefix=self.prefix, partitions=self._partitions)
        self.bus: Bus = open_bus(self.url, settings, options=self._options)
        self.keys = self.bus.keys[0]
        if self._hold:
            hold_stream(self.bus, self.client)
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        for process in self._processes:
            if not process.ended:
                process.signal(signal.SIGCONT)
                process.kill()
        for process in self._processes:  # shown if the test failed
            sys.stderr.write(f"--- {process.log.name}\n{process.said[-1500:]}\n")
        self.client.close()
        self.server.stop()
        unfit = [found[0] for process in self._processes if (found := UNFIT_BREAKAGE.search(process.said))]
        assert not unfit, unfit

    # -- who takes part ------------------------------------------------------------------------------------------

    def producer(self, *, url: str = "", crash: str = "", env: dict[str, str] | None = None, **given: Any) -> Producing:
        """Start a producer process; words are its options, `breakage` a list."""
        name = f"p{len(self.producers)}"
        accepted = self.folder / f"{self.prefix}-{name}.accepted"
        arguments = [sys.executable, "-m", "tests.faults.producer", name, str(accepted)]
        breakages = given.pop("breakage", ())
        for breakage in breakages:
            arguments += ["--breakage", breakage]
        for option, value in given.items():
            arguments += [f"--{option.replace('_', '-')}", str(value)]
        more = {"EVENTBUS_BUFFER_FULL": "wait", "EVENTBUS_BUFFER_WAIT_S": "300"} | (env or {})
        log = self.folder / f"{self.prefix}-{name}.log"
        # What is broken has to be so before anything imports it.
        process = Producing(arguments, self.environ(url, crash, more), log, afresh=bool(breakages))
        process.accepted = accepted
        self._processes.append(process)
        self.producers.append(process)
        return process

    def worker(
        self, *, url: str = "", crash: str = "", breakage: tuple[str, ...] = (), kind: str = "sink", **more: Any
    ) -> Process:
        """Start `eventbus worker <kind>`; *more* are its options."""
        program = ["tests.faults.breakages", *breakage, "--"] if breakage else ["eventbus"]
        arguments = [
            sys.executable,
            "-m",
            *program,
            "worker",
            kind,
            "--take-over-s",
            str(more.pop("take_over_s", TAKE_OVER_S)),
        ]
        for option, value in more.items():
            arguments += [f"--{option}", str(value)]
        log = self.folder / f"{self.prefix}-{kind}{len(self._processes)}.log"
        process = Process(
            arguments,
            self.environ(url, crash, {"EVENTBUS_WORKER_BLOCK_MS": "100"} | self.worker_env),
            log,
            afresh=bool(breakage),
        )
        self._processes.append(process)
        return process

    def run(self, arguments: list[str], env: dict[str, str]) -> Process:
        """Start any other process that takes part."""
        log = self.folder / f"{self.prefix}-process{len(self._processes)}.log"
        broken = "--breakage" in arguments or "tests.faults.breakages" in arguments
        process = Process(arguments, self.environ(more=env), log, afresh=broken)
        self._processes.append(process)
        return process

    def environ(self, url: str = "", crash: str = "", more: dict[str, str] | None = None) -> dict[str, str]:
        """The environment of a process of this scene."""
        ours = {"EVENTBUS_REDIS_URL": url or self.url, "EVENTBUS_PREFIX": self.prefix}
        return dict(os.environ) | ours | STRICT | ({"EVENTBUS_CRASH": crash} if crash else {}) | (more or {})

    # -- what happens to the server ------------------------------------------------------------------------------

    def kill_server(self) -> None:
        """kill -9, and wait until it is gone."""
        os.kill(self.server.pid or 0, signal.SIGKILL)
        until(lambda: not self.server.running())

    def drain_sockets(self) -> None:
        """Wait until Redis has read what frozen producers have sent: it looks at every socket in every round."""

        def is_still() -> bool:
            before = self.published
            for _ in range(20):
                self.client.ping()
            return self.published == before

        until(is_still)

    def see_trimmed(self) -> None:
        """Wait until a worker has trimmed twice from now on: the second time it has begun after the call."""
        with make_client(self.url) as client, client.monitor() as monitor:
            trims = (line for line in monitor.listen() if "FCALL" in line["command"] and "trim" in line["command"])
            for _ in range(2):
                next(trims)
        self.client.ping()  # what was seen has been done

    def go_to(self, url: str) -> None:
        """From now on the bus is judged at *url*: another server has taken over."""
        self.client.close()
        self.client = connect(url, block_ms=1000)

    def restart_server(self) -> None:
        self.server.start()

    # -- the end -------------------------------------------------------------------------------------------------

    def settle(self, still_s: float = SETTLE_S) -> bool:
        """Wait until the store's group has finished with everything, however long that takes.

        Returns: False: it has not, and what it has before it has not become less for *still_s*.
        """
        return waiting.reached_while_falling(self._settled, self._left, still_s, (Exception,))

    def _left(self) -> int:
        """What the store's group has before it: events not read, and entries not acknowledged."""
        left = 0
        for keys in self.bus.keys:
            sink = next(g for g in self.client.xinfo_groups(keys.incoming) if g["name"] == SINK_GROUP.encode())
            left += sink["pending"]
            for _, fields in self.client.xrange(keys.incoming, b"(" + sink["last-delivered-id"], count=1):
                newest = int(self.client.hget(keys.incoming_meta, "events") or 0)
                left += newest - int(fields[b"to"]) + int(fields[b"n"])
        return left

    def _settled(self) -> bool:
        for keys in self.bus.keys:
            groups = {group["name"].decode(): group for group in self.client.xinfo_groups(keys.incoming)}
            sink = groups.get(SINK_GROUP)
            newest = self.client.xinfo_stream(keys.incoming)["last-generated-id"]
            if sink is None or sink["pending"] or sink["last-delivered-id"] != newest:
                return False
        return True

    @property
    def accepted(self) -> Accepted:
        return Accepted(sorted(self.folder.glob(f"{self.prefix}-*.accepted")))

    def verdict(self, *, stored: bool = True, since: float | None = None, still_s: float = SETTLE_S) -> Verdict:
        """Let everything come to rest, and judge; what is left must have stood still for *still_s*.

        *since*: when the fault was over, for the time to recover.
        """
        settled = not stored or self.settle(still_s)
        recovery_s = None if since is None else time.monotonic() - since
        verdict = judge(self.bus, self.client, self.accepted, stored=stored, held=self._hold)
        verdict.recovery_s = recovery_s
        verdict.settled = settled
        return verdict

    @property
    def published(self) -> int:
        """Events that were ever put into the stream, those that workers tell of themselves included."""
        return int(self.client.hget(self.keys.incoming_meta, "events") or 0)

    def meta(self, field: str) -> int:
        return int(self.client.hget(self.keys.meta, field) or 0)

    @property
    def not_created(self) -> int:
        """Events of ours that a full server had no room for, as it has counted them."""
        return int(self.client.hget(self.keys.suppressed, "M\0faults\0Pod\0Normal\0Numbered") or 0)

    def warned(self, words: str) -> bool:
        """Return True if the store has a Warning event with *words* in it, as a worker records of a group's losses."""
        events = ObjectStore(self.bus, self.client).list().items
        return any(event.type == "Warning" and words in event.message for event in events)


def until(condition: Callable[[], object], within_s: float = waiting.PATIENCE_S) -> None:
    """Wait for it; the server may be away meanwhile. Fail if it does not come."""
    waiting.eventually(condition, within_s=within_s, despite=Exception)


def reached(condition: Callable[[], object], within_s: float) -> bool:
    """Wait for it as `until` does; return whether it came."""
    return waiting.reached(condition, within_s, despite=Exception)
