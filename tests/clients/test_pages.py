"""The programs of `docs/connect.md` and `docs/testing.md` run as they stand there, with FastAPI, Django and Celery."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventbus.broker.bus import open_bus
from eventbus.settings import Settings
from eventbus.store.object_store import ObjectStore
from tests.acceptance.programs import Program, environment, run
from tests.clients.tools import PAGES_PYTHON
from tests.waiting import eventually

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, section: str, language: str = "python") -> list[str]:
    """The blocks of code of one section, in their order."""
    text = (DOCS / page).read_text(encoding="utf-8")
    (found,) = re.findall(rf"^## {section}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return [str(block) for block in re.findall(rf"^```{language}\n(.*?)^```$", found, re.MULTILINE | re.DOTALL)]


class Bus:
    """A bus with a sink worker; *env* names it to programs."""

    def __init__(self, url: str, prefix: str) -> None:
        self.env = environment(url, prefix)
        self._settings = Settings(redis_url=url, prefix=prefix)

    def lines(self) -> set[str]:
        bus = open_bus(self._settings.redis_url, self._settings)
        with bus.client() as client, ObjectStore(bus, client) as store:
            found = [(one.metadata.namespace, one.involved_object, one) for one in store.list().items]
        return {
            f"{namespace} {about.kind}/{about.name} {one.type} {one.reason}"
            for namespace, about, one in found
            if namespace != "eventbus-system"  # what the worker says of itself
        }

    def run(self, folder: Path, program: str) -> str:
        """Run it with the packages that the page's readers have, and ours; what it printed."""
        ours = os.pathsep.join([str(folder), str(DOCS.parent), sysconfig.get_path("purelib")])
        (folder / "program.py").write_text(program)
        done = subprocess.run(
            [PAGES_PYTHON, "program.py"],
            cwd=folder,
            env=self.env | {"PYTHONPATH": ours},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def bus(embedded_url: str, prefix: str, tmp_path: Path) -> Iterator[Bus]:
    made = Bus(embedded_url, prefix)
    with Program("worker", "sink", env=made.env, folder=tmp_path):
        yield made


def test_a_plain_script_records_what_it_does_and_why_it_fails(bus: Bus, tmp_path: Path) -> None:
    (script,) = blocks("connect.md", "A plain script")
    bus.run(tmp_path, f"def save(): pass\n{script}")
    failing = f"def save(): raise OSError('disk full')\ntry:\n{re.sub('^', '    ', script, flags=re.MULTILINE)}\n"
    bus.run(tmp_path, f"{failing}\nexcept OSError: pass\n")
    backup = "default Backup/nightly"
    expected = {f"{backup} Normal Started", f"{backup} Normal Completed", f"{backup} Warning Failed"}
    eventually(lambda: bus.lines() == expected)


FASTAPI = """
import asyncio

assert asyncio.run(pay(7)) == {"status": "paid"}
assert "/orders/{order}/pay" in {route.path for route in app.routes}


async def first_line():
    response = await events()
    async for line in response.body_iterator:
        return line


print(asyncio.run(first_line()), end="")
"""


def test_fastapi_records_in_a_coroutine_and_streams_what_comes(bus: Bus, tmp_path: Path) -> None:
    (program,) = blocks("connect.md", "FastAPI")
    assert bus.run(tmp_path, program + FASTAPI) == "ADDED Paid by card\n"
    assert bus.lines() == {"shop Order/7 Normal Paid"}


DJANGO = """
import os

os.environ["DJANGO_SETTINGS_MODULE"] = "site_settings"
import django

django.setup()
import logging

logging.getLogger("shop.views").warning("the card was declined")
"""


def test_django_makes_events_of_warnings(bus: Bus, tmp_path: Path) -> None:
    logging, handler = blocks("connect.md", "Django")
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "events.py").write_text(handler)
    (tmp_path / "site_settings.py").write_text(f"SECRET_KEY = 'x'\nINSTALLED_APPS = ['shop']\n{logging}")
    bus.run(tmp_path, DJANGO)
    eventually(lambda: any(line.startswith("default Service/shop Warning ") for line in bus.lines()))


CELERY = """
from celery import Celery

app = Celery("shop", broker="memory://", backend="cache+memory://")
app.conf.task_always_eager = True


@app.task(name="shop.pay")
def pay(works):
    if not works:
        raise ValueError("no credit")


pay.delay(True)
pay.delay(False)
"""


def test_celery_s_tasks_succeed_and_fail(bus: Bus, tmp_path: Path) -> None:
    (signals,) = blocks("connect.md", "Celery")
    bus.run(tmp_path, signals + CELERY)
    task = "default Task/shop.pay"
    eventually(lambda: bus.lines() == {f"{task} Normal Succeeded", f"{task} Warning Failed"})


def test_a_line_of_cron_and_one_of_a_shell_script(bus: Bus) -> None:
    (cron,) = blocks("connect.md", "cron", language="")
    words = cron.partition(" eventbus ")[2].replace("/usr/local/bin/backup", "true").split()
    assert run(*words, env=bus.env).returncode == 0
    record, _ = blocks("connect.md", "A shell script", language="sh")
    shell = f'eventbus() {{ "{sys.executable}" -m eventbus "$@"; }}\n{record}'
    subprocess.run(["sh", "-ec", shell], env=bus.env, cwd=DOCS.parent, check=True, timeout=120)
    backup = "default Backup/nightly Normal"
    eventually(lambda: bus.lines() == {f"{backup} Started", f"{backup} Completed"})


SHOP = """
from eventbus import make_event_recorder

def pay(order):
    make_event_recorder("shop").event(f"shop/Order/{order}", "Normal", "Paid", "by card")
"""


def test_the_tests_of_the_page_about_tests_pass(tmp_path: Path) -> None:
    text = (DOCS / "testing.md").read_text(encoding="utf-8")
    (tmp_path / "shop.py").write_text(SHOP)
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)):
        (tmp_path / f"test_{number}.py").write_text(block)
    ours = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(DOCS.parent)])}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    done = subprocess.run(command, env=ours, cwd=tmp_path, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
