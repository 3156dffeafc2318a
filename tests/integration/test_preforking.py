"""gunicorn and Celery themselves, as docs/reliability.md says of them: they are told to end while Redis is away.

They are installed into an environment of their own; nothing of ours needs them.
"""

from __future__ import annotations

import os
import signal
import site
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from eventbus.broker.embedded.server import EmbeddedServer
from tests.integration.process_ends import EVENTS, ROOT, tcp_server
from tests.support.harness import frozen, read_incoming, settings_of
from tests.support.ports import free_port
from tests.waiting import eventually

pytestmark = [pytest.mark.volume, pytest.mark.timeout(900), pytest.mark.xdist_group("preforking")]

#: The last that were tried.
PACKAGES = ("gunicorn==27.0.1", "celery==5.7.0")
ENVIRONMENT = ROOT / ".state" / "preforking"
#: Requests, or tasks.
CALLS = 12

RECORDING = f"""
import os
from eventbus import EventBroadcaster, ObjectReference, Settings

broadcaster = EventBroadcaster(os.environ["BUS"], settings=Settings(prefix=os.environ["PREFIX"], flush_s=60))

def record(who):
    recorder = broadcaster.new_recorder("c")
    for number in range({EVENTS}):
        recorder.event(ObjectReference("Pod", "default", "web-0"), "Normal", "Said", f"{{who}} {{number}}")
"""
APPLICATION = """
from recording import record

def application(environ, start_response):
    record(environ["PATH_INFO"])
    start_response("200 OK", [("Content-Length", "0")])
    return []
"""
#: A worker that has not set its handlers yet swallows a SIGTERM, and gunicorn then waits for all of its grace.
CONFIGURATION = """
def post_worker_init(worker):
    worker.log.info("Worker is ready")
"""
WORKERS = 3
TASKS = """
import os
from celery import Celery
from celery.signals import worker_process_shutdown
from recording import broadcaster, record

app = Celery("tasks", broker=os.environ["BROKER"])

@app.task
def work(number):
    record(number)
    with open(os.environ["DONE"], "a") as done:
        done.write(".")

if os.environ["FLUSHES"] == "yes":
    @worker_process_shutdown.connect
    def flush(**_):
        broadcaster.flush()
"""


@pytest.fixture(scope="module")
def python() -> Path:
    """An interpreter that has them."""
    found = ENVIRONMENT / "bin" / "python"
    if not found.exists():
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
    install = [str(found), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
    trusting = {name: value for name, value in os.environ.items() if name != "SSL_CERT_FILE"}  # see tests/conftest.py
    done = subprocess.run(install, env=trusting, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{' and '.join(PACKAGES)} cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    return found


@pytest.fixture
def bus_server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    with tcp_server(tmp_path) as server:
        yield server


@contextmanager
def program(
    python: Path, folder: Path, bus: EmbeddedServer, prefix: str, *words: str, **more: str
) -> Iterator[Program]:
    """Run `python -m …` in *folder*, where the modules are; whatever it leaves behind is killed."""
    modules = {"recording": RECORDING, "application": APPLICATION, "configuration": CONFIGURATION, "tasks": TASKS}
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    ours = {name: value for name, value in os.environ.items() if not name.startswith("EVENTBUS_")}
    path = os.pathsep.join((str(ROOT), str(folder), *site.getsitepackages()))
    env = ours | {"PYTHONPATH": path, "BUS": str(bus.url), "PREFIX": prefix} | more
    log = folder / "said"
    with log.open("w") as output:
        process = subprocess.Popen(
            [str(python), "-m", *words], cwd=folder, env=env, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield Program(process, env, log)
    finally:
        os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None
        process.wait()


class Program:
    """A running server of somebody else's."""

    def __init__(self, process: subprocess.Popen[bytes], env: dict[str, str], log: Path) -> None:
        self.process = process
        self.env = env
        self._log = log

    @property
    def said(self) -> str:
        return self._log.read_text()

    def until(self, condition: Callable[[], object]) -> None:
        eventually(lambda: self.process.poll() is not None or condition(), within_s=300, despite=OSError)
        assert self.process.poll() is None, self.said


def arrived(server: EmbeddedServer, prefix: str) -> int:
    return len(read_incoming(server.url or "", settings_of(prefix)))


@pytest.mark.parametrize("preload", [[], ["--preload"]], ids=["each imports", "preloaded"])
def test_what_the_workers_of_gunicorn_have_recorded_is_kept_when_it_is_ended(
    python: Path, bus_server: EmbeddedServer, prefix: str, tmp_path: Path, preload: list[str]
) -> None:
    where = f"127.0.0.1:{free_port()}"
    options = ["-c", "configuration.py", "-w", str(WORKERS), "-b", where, *preload]
    patience = ["--timeout", "300", "--graceful-timeout", "300"]
    words = ["gunicorn", *options, *patience, "application:application"]
    with program(python, tmp_path, bus_server, prefix, *words) as gunicorn:
        gunicorn.until(lambda: gunicorn.said.count("Worker is ready") == WORKERS)
        with frozen(bus_server.pid):
            for number in range(CALLS):
                urllib.request.urlopen(f"http://{where}/{number}", timeout=300).close()
            gunicorn.process.send_signal(signal.SIGTERM)
        assert gunicorn.process.wait(300) == 0, gunicorn.said
        assert arrived(bus_server, prefix) == CALLS * EVENTS, gunicorn.said
        assert "unsent" not in gunicorn.said


def end_celery(python: Path, bus: EmbeddedServer, prefix: str, folder: Path, flushes: str) -> int:
    """Have its workers record while Redis is away, and end it. Returns the events that have arrived."""
    done = folder / "done"
    done.touch()
    with ExitStack() as stack:
        (folder / "broker").mkdir()
        broker = stack.enter_context(tcp_server(folder / "broker"))
        url = f"redis://127.0.0.1:{broker._config['port']}/0"
        words = ["celery", "-A", "tasks", "worker", "--pool", "prefork", "-c", str(WORKERS), "--loglevel", "INFO"]
        more = {"BROKER": url, "DONE": str(done), "FLUSHES": flushes}
        celery = stack.enter_context(program(python, folder, bus, prefix, *words, **more))
        celery.until(lambda: "ready." in celery.said)
        with frozen(bus.pid):
            send = f"from tasks import work\nfor n in range({CALLS}): work.delay(n)"
            subprocess.run([str(python), "-c", send], env=celery.env, cwd=folder, check=True, timeout=300)
            celery.until(lambda: len(done.read_text()) == CALLS)
            celery.process.send_signal(signal.SIGTERM)
            if flushes == "no":
                assert celery.process.wait(300) == 0, celery.said
        assert celery.process.wait(300) == 0, celery.said
        return arrived(bus, prefix)


def test_what_celerys_workers_have_recorded_is_kept_if_they_flush_at_their_shutdown(
    python: Path, bus_server: EmbeddedServer, prefix: str, tmp_path: Path
) -> None:
    assert end_celery(python, bus_server, prefix, tmp_path, "yes") == CALLS * EVENTS


def test_what_celerys_workers_have_recorded_is_lost_if_they_do_not(
    python: Path, bus_server: EmbeddedServer, prefix: str, tmp_path: Path
) -> None:
    assert end_celery(python, bus_server, prefix, tmp_path, "no") == 0
