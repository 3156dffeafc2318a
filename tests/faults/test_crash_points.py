"""The named places themselves: nothing in normal runs, an end at the one that was ordered, and each of them is used."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eventbus.util import failpoints

pytestmark = pytest.mark.short

ROOT = Path(__file__).resolve().parents[2]
PASS_BY = (
    "from eventbus.util.failpoints import failpoint as c; [c('a'), c('a', b'xMARKx'), c('b'), c('a')]; print('lived')"
)


def exit_code(order: str) -> int:
    env = {"EVENTBUS_CRASH": order} if order else {}
    return subprocess.run([sys.executable, "-c", PASS_BY], env=env, cwd=ROOT, check=False).returncode


@pytest.mark.parametrize(
    ("order", "code"),
    [
        ("", 0),
        ("kill:c", 0),
        ("kill:a:4", 0),
        ("kill:a", -signal.SIGKILL),
        ("kill:a:3", -signal.SIGKILL),
        ("kill:b:1", -signal.SIGKILL),
        ("kill:a@MARK", -signal.SIGKILL),
        ("kill:a@ABSENT", 0),
    ],
)
def test_only_the_ordered_place_ends_the_process(order: str, code: int) -> None:
    assert exit_code(order) == code


def test_without_an_order_a_place_is_a_call_of_nothing() -> None:
    place: Any = failpoints.failpoint
    assert place.__code__.co_code == (lambda: None).__code__.co_code


def test_every_place_has_a_test_that_ends_a_process_there() -> None:
    # Those of exports have tests of their own, which kill exports.
    code = "".join(path.read_text() for path in (ROOT / "eventbus").rglob("*.py") if path.parent.name != "export")
    here = Path(__file__).parent
    files = (*here.glob("test_*.py"), here.parent / "integration" / "test_spool.py")
    tests = "".join(path.read_text() for path in files)
    places = set(re.findall(r'failpoint\("(\w+)"', code))
    assert len(places) >= 14
    assert {place for place in places if not re.search(rf'"(kill:|stop:)?{place}(:\d+)?(@|"|\{{)', tests)} == set()
