"""What a line prints is shown whole and in order, whichever of its runs has begun meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

from eventbus.agent.logs import LOST
from eventbus.agent.procfile.procfile_runner import LineFollower
from eventbus.agent.runtime.contract import (
    ContainerId,
    ContainerPhase,
    ContainerRuntimeStatus,
    PodRuntimeStatus,
    PodUid,
)
from eventbus.agent.shim.output import LogFile

#: More than is passed on at a look.
LONG = 3_000_000


class Shown:
    """A follower, what it has shown and told, and the runs of its line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: list[str] = []
        self.notes: list[str] = []
        self.follower = LineFollower(
            "web",
            log=lambda attempt: folder / f"{attempt}.log",
            write=lambda _name, line: self.said.append(line.decode()),
            report=self.said.append,
            note=lambda _type, _reason, message: self.notes.append(message),
        )

    def print(self, attempt: int, line: str, size: int = 0) -> None:
        (self.folder / f"{attempt}.log").write_text(f"{'.' * 99}\n" * (size // 100) + f"{line}\n")

    def look(self, *exit_codes: int | None, first: int = 0) -> None:
        """Look at runs from the *first* on: how each has exited; None: it runs."""
        runs = tuple(a_run(number, code) for number, code in enumerate(exit_codes, first))
        self.follower.step(PodRuntimeStatus(uid=PodUid("u"), name="web", namespace="n", containers=runs))

    @property
    def end(self) -> list[str]:
        return [line for line in self.said if not line.startswith(".")]


def a_run(attempt: int, exit_code: int | None) -> ContainerRuntimeStatus:
    phase = ContainerPhase.RUNNING if exit_code is None else ContainerPhase.EXITED
    return ContainerRuntimeStatus(
        id=ContainerId(f"u/web/{attempt}"), name="web", attempt=attempt, hash="", phase=phase, exit_code=exit_code or 0
    )


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_run_is_shown_to_its_end_before_the_next_one(tmp_path: Path) -> None:
    shown, before = Shown(tmp_path), descriptors()
    shown.print(0, "last words", LONG)
    shown.print(1, "again")
    shown.look(None)
    for _ in range(5):
        shown.look(3, None)

    assert shown.end == ["last words", "web: exit code 3 after <1s: last words", "web: starting it again", "again"]
    assert len(shown.said) == LONG // 100 + 4
    assert len(shown.notes) == 1
    shown.look(3, 0)
    assert descriptors() == before


def test_a_run_that_nobody_remembers_any_more_does_not_hold_up_the_next(tmp_path: Path) -> None:
    shown = Shown(tmp_path)
    shown.print(0, "last words", LONG)
    shown.print(1, "second")
    shown.print(2, "third")
    shown.look(None)
    for _ in range(5):
        shown.look(1, None, first=1)

    assert [line for line in shown.end if not line.startswith("web:")] == ["last words", "second", "third"]
    shown.look(1, 0, first=1)


def test_output_in_rotated_pieces_of_a_removed_log_is_reported_as_lost(tmp_path: Path) -> None:
    shown, log = Shown(tmp_path), LogFile(str(tmp_path / "0.log"))
    log.write(b"first\nhalf a line")
    shown.look(None)
    for _ in range(200):
        log.write((b"." * 99 + b"\n") * 640)
    log.write(b"last words\n")
    log.close()
    for piece in tmp_path.glob("0.log*"):
        piece.unlink()
    shown.print(1, "second")
    shown.print(2, "third")
    for _ in range(20):
        shown.look(1, None, first=1)

    assert [line for line in shown.end if not line.startswith("web:")] == [
        "first",
        "half a line" + "." * 99,
        LOST.decode(),
        "second",
        "third",
    ]
    shown.look(1, 0, first=1)


def test_a_removed_log_that_was_read_to_its_end_has_lost_nothing(tmp_path: Path) -> None:
    shown = Shown(tmp_path)
    shown.print(0, "first")
    shown.look(None)
    (tmp_path / "0.log").unlink()
    shown.print(1, "second")
    shown.print(2, "third")
    shown.look(1, None, first=1)

    assert [line for line in shown.end if not line.startswith("web:")] == ["first", "second", "third"]
    shown.look(1, 0, first=1)


def test_a_run_that_began_and_ended_between_two_looks_is_reported_as_lost(tmp_path: Path) -> None:
    shown = Shown(tmp_path)
    shown.print(0, "first")
    shown.print(2, "third")
    shown.look(0)
    shown.look(None, first=2)
    assert [line for line in shown.end if not line.startswith("web:")] == ["first", LOST.decode(), "third"]
    shown.look(0, first=2)


def test_a_follower_that_is_closed_keeps_no_file_open(tmp_path: Path) -> None:
    shown, before = Shown(tmp_path), descriptors()
    shown.print(0, "first")
    shown.look(None)
    shown.follower.close()
    shown.follower.close()
    assert descriptors() == before
