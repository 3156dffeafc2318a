"""Which files are read of those that decide what runs, or who is who: those that nobody else can put there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eventbus.errors import ConfigError
from eventbus.util.own_files import check_own_folders, read_own


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """A folder of our own, with a file and a link to it."""
    tmp_path.chmod(0o700)
    folder = tmp_path / "good"
    folder.mkdir(0o755)
    (folder / "a.yaml").touch(0o644)
    (folder / "link.yaml").symlink_to("a.yaml")
    (tmp_path / "way").symlink_to(folder)
    return folder


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder in which others may put what they like in the place of any link."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def test_links_of_our_own_are_followed(good: Path) -> None:
    check_own_folders(good.with_name("way"))
    check_own_folders(good.with_name("way") / ".." / "good")
    assert read_own(good / "link.yaml", 10) == b""


def test_a_folder_through_a_link_that_others_can_replace_is_refused(good: Path, shared: Path) -> None:
    (shared / "way").symlink_to(good)
    for path in (shared / "way", shared / ".." / "shared" / "way", good / ".." / "shared" / "way"):
        with pytest.raises(ConfigError, match=f"{shared} can be written by others"):
            check_own_folders(path)
    good.with_name("far").symlink_to("shared/way")
    with pytest.raises(ConfigError, match=f"{shared} can be written by others"):
        check_own_folders(good.with_name("far"))


def test_a_file_through_a_link_that_others_can_replace_is_refused(good: Path, shared: Path) -> None:
    (shared / "way").symlink_to(good)
    (good / "b.yaml").symlink_to(shared / "way" / "a.yaml")
    with pytest.raises(ConfigError, match=f"{shared} can be written by others"):
        read_own(good / "b.yaml", 10)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give links away")
def test_a_link_of_somebody_else_in_a_sticky_folder_is_refused(good: Path, shared: Path) -> None:
    shared.chmod(0o1777)
    (shared / "way").symlink_to(good)
    check_own_folders(shared / "way")
    os.lchown(shared / "way", 12345, 12345)
    with pytest.raises(ConfigError, match="belongs to uid 12345"):
        check_own_folders(shared / "way")


def test_a_pipe_and_a_folder_are_no_files_and_hold_up_nobody(good: Path) -> None:
    os.mkfifo(good / "pipe.yaml", 0o600)
    before = os.listdir("/proc/self/fd")
    for path in (good / "pipe.yaml", good):
        with pytest.raises(ConfigError, match="is no file"):
            read_own(path, 10)
    assert os.listdir("/proc/self/fd") == before


def test_links_in_a_circle_are_refused(good: Path) -> None:
    (good / "circle").symlink_to("circle")
    with pytest.raises(ConfigError, match="too many links"):
        check_own_folders(good / "circle")
