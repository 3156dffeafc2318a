"""Files that are read again while requests go on."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from eventbus.api import reread_file
from eventbus.api.auth.authentication import TokenFile
from eventbus.api.reread_file import RereadFile
from eventbus.errors import ConfigError


@pytest.fixture(autouse=True)
def looked_at_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reread_file, "LOOK_EVERY_S", 0)


async def until(condition: Callable[[], bool], step: Callable[[], Awaitable[None]]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await step()
            await asyncio.sleep(0.001)


def test_a_file_that_takes_long_to_read_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reread_file, "LOOK_S", 0.001)
    path = tmp_path / "file"
    path.write_text("a")
    may_read = threading.Event()
    may_read.set()

    def read(path: Path) -> str:
        assert may_read.wait(60)
        return path.read_text()

    async def go() -> None:
        file = RereadFile("--file", path, read)
        may_read.clear()
        path.write_text("other")
        for _ in range(3):
            await file.refresh()
            assert file.value == "a"
        may_read.set()
        await until(lambda: file.value == "other", file.refresh)

    asyncio.run(go())


def test_a_file_that_cannot_be_used_any_more_is_reported_once_and_what_was_read_holds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tokens.csv"
    path.write_text("a-token,ann,1\n")
    tokens = TokenFile(path)

    async def go() -> None:
        path.chmod(0o622)
        for _ in range(3):
            user = await tokens.user("a-token")
            assert user is not None
            assert user.name == "ann"
        path.write_text("b-token,bob,1\n")
        await tokens.user("a-token")
        path.chmod(0o600)
        assert await tokens.user("a-token") is None
        assert await tokens.user("b-token") is not None

    asyncio.run(go())
    errors = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 2  # one for each change
    assert f"{path} can be written by others: chmod go-w {path}; the content read before is used" in errors[0]


def test_a_changed_file_is_read_once_its_folder_has_been_put_right(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tokens.csv"
    path.write_text("a-token,ann,1\n")
    tokens = TokenFile(path)

    async def go() -> None:
        tmp_path.chmod(0o777)
        path.write_text("b-token,bob,1\n")
        for _ in range(3):
            assert await tokens.user("b-token") is None
        tmp_path.chmod(0o755)  # the cure that the error names
        assert await tokens.user("b-token") is not None

    asyncio.run(go())
    assert [record.levelname for record in caplog.records if "chmod go-w" in record.message] == ["ERROR"]


@pytest.mark.parametrize("spoiled", ["file", "folder"])
def test_tokens_that_others_can_write_are_refused(tmp_path: Path, spoiled: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "tokens.csv"
    path.write_text("a-token,ann,1\n")
    TokenFile(path)
    found = path if spoiled == "file" else folder
    found.chmod(0o777)
    with pytest.raises(ConfigError, match=f"--token-file {path}: {found} can be written by others: chmod go-w {found}"):
        TokenFile(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_tokens_of_somebody_else_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens.csv"
    path.write_text("a-token,ann,1\n")
    os.chown(path, 12345, 12345)
    with pytest.raises(ConfigError, match="belongs to uid 12345"):
        TokenFile(path)
