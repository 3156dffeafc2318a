"""The keepers of a server are those `eventbus up` that live, whoever came last."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from eventbus.broker.embedded.refcount import Reference, held_references, holders
from eventbus.errors import ConfigError

KEEPER = """
import sys
from pathlib import Path
from eventbus.broker.embedded.refcount import Reference
lock = Reference(Path(sys.argv[1]))
lock.take()
print("taken", flush=True)
sys.stdin.read()
"""


def _keeper(directory: Path, code: str = KEEPER) -> subprocess.Popen[str]:
    keeper = subprocess.Popen(
        [sys.executable, "-c", code, directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert keeper.stdout
    assert keeper.stdout.readline() == "taken\n"
    return keeper


def test_the_last_to_come_is_not_named_once_it_is_gone(tmp_path: Path) -> None:
    with _keeper(tmp_path) as first:
        with _keeper(tmp_path) as second:
            assert sorted(holders(tmp_path)) == sorted([str(first.pid), str(second.pid)])
            second.kill()
        assert holders(tmp_path) == [str(first.pid)]
        first.communicate()
    assert holders(tmp_path) == []


def test_a_lock_that_the_dead_have_left_to_another_names_the_one_that_lives(tmp_path: Path) -> None:
    with _keeper(
        tmp_path,
        KEEPER + "import os\nif os.fork(): os._exit(0)\nprint(os.getpid(), flush=True)\n"
        "import signal\nsignal.pause()\n",
    ) as dead:
        assert dead.stdin
        assert dead.stdout
        dead.stdin.close()
        left = dead.stdout.readline().strip()
        dead.wait()
        assert holders(tmp_path) == [left]
        (lock,) = held_references(tmp_path)
        assert (lock.named, lock.is_stale) == (str(dead.pid), True)
        os.kill(int(left), signal.SIGKILL)


def test_what_the_dead_have_left_is_cleared_away(tmp_path: Path) -> None:
    with _keeper(tmp_path) as dead:
        dead.kill()
    assert list(tmp_path.iterdir())
    lock = Reference(tmp_path)
    lock.take()
    lock.take()
    assert holders(tmp_path) == [str(os.getpid())]
    assert len(list(tmp_path.iterdir())) == 1
    lock.release()
    lock.release()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file or directory"):
        Reference(tmp_path / "gone").take()
    assert holders(tmp_path / "gone") == []
