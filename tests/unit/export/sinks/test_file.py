"""JSON Lines: one line a write, whole or not at all; rotation by size and time; what is safe when."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from eventbus.errors import ConfigError, EventUnbuildable, SinkGone, SinkUnreachable
from eventbus.export.sinks import BatchSink, EventPatch, EventSink, SinkMode, SinkWrite, Verb, make_sink
from eventbus.export.sinks.file import FileOptions, JsonLinesSink, RotatingFile
from eventbus.model.event import Event, ObjectMeta
from tests.builders import make_event
from tests.starting import STRICT, start


def event(name: str = "a", count: int = 1) -> Event:
    metadata = ObjectMeta(name=name, namespace="default", uid=f"p:{name}", resource_version="7")
    return make_event(metadata=metadata, count=count)


def sink_of(path: Path, query: str = "") -> JsonLinesSink:
    sink = make_sink(f"file:{path}{query}", {})
    assert isinstance(sink, JsonLinesSink)
    return sink


def lines(path: Path) -> list[str]:
    return [json.loads(line)["deliveryId"] for line in path.read_text("utf-8").splitlines()]


def test_every_call_is_a_line_with_its_delivery_id_and_the_whole_event(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    sink: EventSink = sink_of(path)
    sink.create(event())
    sink.update(event("b"))
    sink.patch(event(count=3), EventPatch(name="a", count=3))
    assert lines(path) == ["p:a/1", "p:b/1", "p:a/3"]
    last = json.loads(path.read_text("utf-8").splitlines()[-1])["event"]
    assert (last["count"], last["metadata"]["name"], last["message"]) == (3, "a", "Started container web")
    assert sink.mode is SinkMode.APPEND
    assert isinstance(sink, BatchSink)


def test_of_a_batch_what_cannot_be_written_holds_up_nothing(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    west = timezone(timedelta(hours=-5))
    good, bad = event(), make_event(event_time=datetime(9999, 12, 31, 23, tzinfo=west))
    writes = [SinkWrite.of(Verb.CREATE, each) for each in (good, bad, event("b"))]
    answers = sink_of(path).write(writes)
    assert lines(path) == ["p:a/1", "p:b/1"]
    assert isinstance(answers[1], EventUnbuildable)
    assert answers[0] is good


def test_a_lone_surrogate_is_replaced_as_in_every_sink(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    sink_of(path).create(make_event(message="lone \ud800 surrogate"))
    assert json.loads(path.read_text("utf-8"))["event"]["message"] == "lone \ufffd surrogate"


def test_a_full_file_is_rotated_and_only_so_many_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    sink = sink_of(path, "?max-size=1000&keep=2")
    for number in range(1, 13):
        sink.create(event(count=number))
    names = [path, tmp_path / "events.jsonl.1", tmp_path / "events.jsonl.2"]
    assert all(name.stat().st_size <= 1000 for name in names)
    kept = [line for name in reversed(names) for line in lines(name)]
    assert kept == [f"p:a/{number}" for number in range(13 - len(kept), 13)]
    assert len(kept) >= 3
    assert sorted(tmp_path.iterdir()) == sorted([*names, tmp_path / "events.jsonl.lock"])


def test_an_old_file_is_rotated_also_by_another_process(tmp_path: Path) -> None:
    path, now = tmp_path / "events.jsonl", 1_000_000.0
    options = FileOptions(max_age_s=60)
    RotatingFile(path, options, now=lambda: now).append(b"first\n")
    RotatingFile(path, options, now=lambda: now + 59).append(b"second\n")
    RotatingFile(path, options, now=lambda: now + 60).append(b"third\n")
    RotatingFile(path, options, now=lambda: now + 119).append(b"fourth\n")
    assert (tmp_path / "events.jsonl.1").read_bytes() == b"first\nsecond\n"
    assert path.read_bytes() == b"third\nfourth\n"


def test_a_line_that_a_crash_left_unfinished_is_cut_off_and_a_foreign_one_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    sink = sink_of(path)
    sink.create(event())
    with path.open("ab") as file:
        file.write(b'{"deliveryId":"p:torn')
    sink.create(event("b"))
    assert lines(path) == ["p:a/1", "p:b/1"]
    with path.open("ab") as file:
        file.write(b"a note of mine")
    sink.create(event("c"))
    assert path.read_text("utf-8").splitlines()[2] == "a note of mine"


#: Appends once standard input ends, which is one pipe for both processes.
APPEND = """
import sys
from eventbus.export.sinks import make_sink
from eventbus.model.encoding.event_json import from_core

path, name = sys.argv[1:]
sink = make_sink(f"file:{path}?max-size=1KiB&keep=200", {})
about = {"kind": "Pod", "namespace": "default", "name": name}
metadata = {"name": name, "namespace": "default", "uid": f"p:{name}", "resourceVersion": "7"}
sys.stdin.read()
for number in range(80):
    event = {"metadata": metadata, "involvedObject": about, "message": "x" * 400, "count": number}
    sink.create(from_core(event))
"""


def test_processes_share_a_file_and_its_rotation_without_losing_a_line(tmp_path: Path) -> None:
    path, errors = tmp_path / "events.jsonl", tmp_path / "errors.lock"
    its, ours = os.pipe()
    with errors.open("wb") as out, open(its), open(ours, "w"):
        words = [sys.executable, "-c", APPEND, str(path)]
        env = {**os.environ, **STRICT}
        processes = [start([*words, name], env=env, stdin=its, stdout=out, stderr=out) for name in "ab"]
    assert [process.wait(30) for process in processes] == [0, 0], errors.read_text()
    files = [file for file in tmp_path.iterdir() if file.suffix != ".lock"]
    found = [line for file in files for line in lines(file)]
    assert sorted(found) == sorted(f"p:{name}/{number}" for name in "ab" for number in range(80))
    assert len(files) > 2


def test_a_disk_that_is_full_is_an_outage_and_leaves_no_half_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    sink = sink_of(path)
    sink.create(event())
    before, size = resource.getrlimit(resource.RLIMIT_FSIZE), path.stat().st_size
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40, before[1]))
    try:
        with pytest.raises(SinkUnreachable):
            sink.create(event("b"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert lines(path) == ["p:a/1"]
    sink.create(event("b"))
    assert lines(path) == ["p:a/1", "p:b/1"]


@pytest.mark.parametrize(("query", "mode"), [("", 0o600), ("?mode=640", 0o640), ("?mode=0666&max-size=1", 0o666)])
def test_a_new_file_is_its_users_alone_unless_a_mode_is_given(tmp_path: Path, query: str, mode: int) -> None:
    path = tmp_path / "events.jsonl"
    before = os.umask(0o022)
    try:
        sink = sink_of(path, query)
        sink.create(event())
        sink.create(event("b"))
    finally:
        os.umask(before)
    assert {oct(file.stat().st_mode & 0o777) for file in tmp_path.iterdir()} == {oct(mode)}


def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.touch()
    path.chmod(0o640)
    sink_of(path).create(event())
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("linked", ["events.jsonl", "events.jsonl.lock"])
@pytest.mark.parametrize("there", [True, False])
def test_a_symbolic_link_is_never_written_through(tmp_path: Path, linked: str, there: bool) -> None:
    path, target = tmp_path / "events.jsonl", tmp_path / "target"
    sink = sink_of(path)
    if there:
        target.write_bytes(b"mine")
    (tmp_path / linked).symlink_to(target)
    with pytest.raises(ConfigError, match=f"{linked} is a symbolic link: give the path that it leads to, {target}"):
        sink_of(path)
    with pytest.raises(SinkUnreachable, match=rf"{linked}: .*symbolic links"):  # it came later
        sink.create(event())
    assert target.exists() == there
    assert not there or target.read_bytes() == b"mine"


def test_what_is_no_regular_file_is_refused_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/dev/null"), tmp_path / "pipe", tmp_path):
        with pytest.raises(ConfigError, match=f"{path} is no regular file: give another path, or stdout:"):
            sink_of(path)
        assert not path.with_name(f"{path.name}.lock").exists()
    sink = sink_of(tmp_path / "events.jsonl")
    os.mkfifo(tmp_path / "events.jsonl")
    with pytest.raises(SinkUnreachable, match=r"events.jsonl: is no regular file"):
        sink.create(event())


def test_a_path_with_a_zero_in_it_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"%00 in it.*take it out") as caught:
        make_sink(f"file:{tmp_path}/a%00b", {})
    assert "\n" not in str(caught.value)


def test_a_folder_that_goes_is_an_outage_that_names_it(tmp_path: Path) -> None:
    (folder := tmp_path / "folder").mkdir()
    sink = sink_of(folder / "events.jsonl")
    folder.rmdir()
    with pytest.raises(SinkUnreachable, match=f"^{folder}: No such file or directory$"):
        sink.create(event())
    folder.mkdir()
    sink.create(event())
    assert lines(folder / "events.jsonl") == ["p:a/1"]


def test_a_folder_that_is_not_there_at_the_start_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"there is no folder {tmp_path}/missing: make it"):
        sink_of(tmp_path / "missing" / "events.jsonl")


def test_what_may_not_be_written_to_at_the_start_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root, who may all, runs tests too: the answer is given for the system."""
    path = tmp_path / "events.jsonl"
    closed = {str(tmp_path)}
    monkeypatch.setattr(os, "access", lambda path, _mode: str(path) not in closed)
    with pytest.raises(ConfigError, match=f"may not write to {tmp_path}: permit it"):
        sink_of(path)
    path.touch()
    path.with_name("events.jsonl.lock").touch()
    sink_of(path)
    closed.add(str(path))
    with pytest.raises(ConfigError, match=f"may not write to {path}: permit it"):
        sink_of(path)


@pytest.mark.parametrize(("policy", "syncs"), [("every", 3), ("never", 0)])
def test_what_was_written_is_synced_as_the_policy_says(
    tmp_path: Path, policy: str, syncs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"")
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    sink = sink_of(path, f"?fsync={policy}")
    for name in "abc":
        sink.create(event(name))
    assert len(synced) == syncs
    sink.close()


def test_standard_output_has_the_same_lines_and_a_reader_that_left_ends_it(capfd: pytest.CaptureFixture[str]) -> None:
    sink = make_sink("stdout:", {})
    sink.create(event())
    assert json.loads(capfd.readouterr().out)["deliveryId"] == "p:a/1"
    read, write = os.pipe()
    os.close(read)
    kept = os.dup(1)
    os.dup2(write, 1)
    try:
        with pytest.raises(SinkGone):
            sink.create(event())
    finally:
        os.dup2(kept, 1)
        for file in (write, kept):
            os.close(file)


@pytest.mark.parametrize(
    ("url", "cure"),
    [
        ("file:", "give a path, like file:/var/log"),
        ("file://host/path", "give a path, like file:/var/log"),
        ("file:/x?size=1", "there are max-size, max-age, keep, mode, fsync"),
        ("file:/x?max-size=1MB", "use a size, as in 100MiB"),
        ("file:/x?fsync=often", "use every or never"),
        ("stdout:x", "give stdout:"),
        ("file:/x?keep=-1", "use a number of files"),
    ],
)
def test_an_url_that_will_not_do_is_refused_with_the_cure(url: str, cure: str) -> None:
    with pytest.raises(ConfigError, match=cure):
        make_sink(url, {})
