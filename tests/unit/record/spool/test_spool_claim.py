"""journal.py: a folder is held by one process, until that ends, and by nobody else in between."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from eventbus.errors import ConfigError
from eventbus.record.spool.journal import LOCK, Claim, folders, holds, is_held

TAKE = """import sys, pathlib
from eventbus.record.spool.journal import Claim
sys.exit(Claim.take(pathlib.Path(sys.argv[1])) is None)"""


def others_may_take(folder: Path) -> bool:
    return subprocess.run([sys.executable, "-c", TAKE, str(folder)], check=False).returncode == 0


def test_what_one_process_holds_no_other_takes(tmp_path: Path) -> None:
    claim = Claim.make(tmp_path / "spool")
    assert holds(claim.folder)
    # This process looks at all folders as well, and must not lose its own lock by that.
    assert Claim.take(claim.folder) is None
    assert is_held(claim.folder)
    assert list(folders(tmp_path / "spool")) == [claim.folder]
    assert not others_may_take(claim.folder)
    claim.release()
    assert others_may_take(claim.folder)


def test_of_many_threads_that_want_a_folder_one_gets_it(tmp_path: Path) -> None:
    made = Claim.make(tmp_path / "spool")
    made.release()
    got: list[Claim] = []
    barrier = threading.Barrier(8)

    def take() -> None:
        barrier.wait()
        if claim := Claim.take(made.folder):
            got.append(claim)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1
    got[0].remove()
    assert not made.folder.exists()
    assert Claim.take(made.folder) is None


def test_a_folder_that_was_done_meanwhile_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Claim.make(tmp_path / "spool")
    made.release()
    real = os.open

    def open_then_replace(path: str | Path, *rest: int) -> int:
        opened = real(path, *rest)
        os.unlink(made.folder / LOCK)  # by whoever held it, between our look and our lock
        os.close(real(made.folder / LOCK, os.O_CREAT | os.O_RDWR, 0o600))
        return opened

    monkeypatch.setattr(os, "open", open_then_replace)
    assert Claim.take(made.folder) is None


def test_a_child_holds_nothing_of_its_parents_and_takes_nothing_from_it(tmp_path: Path) -> None:
    claim = Claim.make(tmp_path / "spool")
    pid = os.fork()
    if pid == 0:
        os._exit(0 if not holds(claim.folder) and Claim.take(claim.folder) is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert not others_may_take(claim.folder)
    claim.release()


def test_a_folder_that_is_others_too_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "spool"
    root.mkdir(mode=0o755)
    root.chmod(0o755)
    with pytest.raises(ConfigError, match=r"the spool will not use .* others may enter it.*chmod 700"):
        Claim.make(root)
    (tmp_path / "link").symlink_to(root)
    with pytest.raises(ConfigError, match="is a symbolic link: set EVENTBUS_SPOOL to"):
        Claim.make(tmp_path / "link")
    with pytest.raises(ConfigError, match="must be an absolute path"):
        Claim.make(Path("spool"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    claim = Claim.make(tmp_path / "spool")
    claim.release()
    os.chown(claim.folder, 12_345, -1)
    with pytest.raises(ConfigError, match="belongs to user 12345"):
        Claim.take(claim.folder)


def test_a_folder_whose_process_died_before_it_had_the_lock_is_removed(tmp_path: Path) -> None:
    claim = Claim.make(tmp_path / "spool")
    new = tmp_path / "spool" / "new-1"
    new.mkdir()
    assert list(folders(tmp_path / "spool")) == [claim.folder]
    assert new.exists()
    os.utime(new, (0, 0))
    assert list(folders(tmp_path / "spool")) == [claim.folder]
    assert not new.exists()
    claim.release()
