"""eventbus as a user installs it, from its wheel: nothing but the package `eventbus` comes with it."""

from __future__ import annotations

import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support.installed import Installed, build, install

pytestmark = pytest.mark.xdist_group("wheel")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install(wheel, tmp_path_factory.mktemp("installed") / "venv")


def test_it_installs_the_package_eventbus_and_nothing_beside_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as files:
        names = set(files.namelist())
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"eventbus"}
    assert {"eventbus/workers/__init__.py", "eventbus/workers/sink.py"} <= names


@pytest.mark.volume
def test_a_wheel_of_the_source_archive_has_the_same_files(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(build(tmp_path, "sdist")) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    with zipfile.ZipFile(wheel) as ours, zipfile.ZipFile(build(tmp_path, source=source)) as theirs:
        assert {(file.filename, file.CRC) for file in ours.infolist()} == {
            (file.filename, file.CRC) for file in theirs.infolist()
        }


@pytest.mark.parametrize("kind", ["package", "folder", "module"])
@pytest.mark.parametrize("on", ["path", "working directory"])
def test_workers_of_the_user_and_ours_do_not_meet(installed: Installed, kind: str, on: str, tmp_path: Path) -> None:
    if kind == "module":
        (tmp_path / "workers.py").write_text("mine = 'the user'")
        name = "from workers import mine"
    else:
        (tmp_path / "workers").mkdir()
        (tmp_path / "workers" / "mine.py").write_text("mine = 'the user'")
        name = "from workers.mine import mine"
    if kind == "package":
        (tmp_path / "workers" / "__init__.py").touch()
    folder = tmp_path if on == "working directory" else installed.folder
    env = {"PYTHONPATH": str(tmp_path)} if on == "path" else {}

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=50, check=False)

    theirs = run(installed.python, "-c", f"import eventbus.workers.cli; {name}; print(mine)")
    assert (theirs.returncode, theirs.stdout, theirs.stderr) == (0, "the user\n", "")
    for program in ([installed.eventbus], [installed.python, "-m", "eventbus"]):
        ours = run(*program, "worker", "sink", "--help")
        assert (ours.returncode, ours.stderr) == (0, "")
        assert "Usage: eventbus worker sink" in ours.stdout
