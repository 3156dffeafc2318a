"""Lines of the fleet's log, and the file that has each of them once."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import resource
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eventbus.workers.log_output
from eventbus.model.event import Event, EventSource, ObjectMeta
from eventbus.workers import log_output
from eventbus.workers.log_lines import Format, formatter, line_uid, uid_of_line
from eventbus.workers.log_output import (
    Batch,
    FileOutput,
    Line,
    OutputUnavailable,
    Owned,
    ReaderGone,
    StreamOutput,
    open_output,
)
from tests.builders import events, make_event, make_reference

NASTY = 'two\nlines uid=fake:1 \x1b[2J\u202e "quoted" a=b {"uid":"fake:2"} \\'


def named(uid: str, **overrides: object) -> Event:
    return make_event(metadata=ObjectMeta(name="n", namespace="default", uid=uid), **overrides)


def lines(form: Format, *uids: str, message: str = "message") -> list[Line]:
    found = [named(uid, message=message) for uid in uids]
    return [Line(line_uid(event, form), formatter(form)(event).encode()) for event in found]


@pytest.mark.parametrize("form", Format)
def test_a_line_is_one_line_with_one_uid_whatever_the_event_says(form: Format) -> None:
    event = named(
        "abc:7",
        message=NASTY,
        reason=NASTY,
        source=EventSource(NASTY, NASTY),
        involved_object=make_reference(name=NASTY, kind=NASTY, uid="fake:3"),
    )
    line = formatter(form)(event)
    assert line.endswith("\n")
    assert line.count("\n") == 1
    assert line.removesuffix("\n").isprintable()
    assert uid_of_line(line.encode().removesuffix(b"\n")) == "abc:7"


@given(events(), st.text(st.characters(exclude_categories=["Cs"]), max_size=20), st.sampled_from(Format))
def test_the_uid_of_any_event_is_found_again(event: Event, uid: str, form: Format) -> None:
    event = msgspec.structs.replace(event, metadata=msgspec.structs.replace(event.metadata, uid=uid or "p:1"))
    line = formatter(form)(event).encode("utf-8", "backslashreplace")
    assert line.count(b"\n") == 1
    if "\0" not in uid:
        assert uid_of_line(line.removesuffix(b"\n")) == line_uid(event, form)


def test_a_line_of_json_is_the_event_in_ascii() -> None:
    line = formatter(Format.JSON)(named("abc:7", message="é\x1b"))
    assert line.isascii()
    loaded = json.loads(line)
    assert (loaded["kind"], loaded["metadata"]["uid"], loaded["message"]) == ("Event", "abc:7", "é\x1b")


def test_a_line_of_text_reads_like_kubectl() -> None:
    assert formatter(Format.TEXT)(named("abc:7")) == (
        "2024-01-01T12:00:00.000Z  default  Normal   Started  pod/web-0  kubelet, node-1  Started container web"
        "  uid=abc:7\n"
    )


def test_a_line_of_logfmt_quotes_what_needs_it() -> None:
    assert formatter(Format.LOGFMT)(named("abc:7", message='a "b"=c', source=EventSource("kubelet", ""))) == (
        "uid=abc:7 time=2024-01-01T12:00:00.000Z type=Normal reason=Started namespace=default kind=Pod name=web-0 "
        'component=kubelet host="" message="a \\"b\\"=c"\n'
    )


def write(
    output: FileOutput, *batches: Sequence[Line], again: bool = False, lost: int = 0, sent_again: bool = False
) -> list[bytes]:
    """*lost*: so many batches from the first have been taken over meanwhile."""
    packed = [Batch(b"%d-0" % number, batch) for number, batch in enumerate(batches)]
    return output.write(packed, again=again, owned=lambda: Owned({batch.id for batch in packed[lost:]}, sent_again))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.log"


@pytest.fixture
def output(path: Path) -> Iterator[FileOutput]:
    made = open_output(str(path))
    assert isinstance(made, FileOutput)
    yield made
    made.close()


def uids(path: Path) -> list[str | None]:
    data = path.read_bytes()
    assert data.endswith(b"\n")
    return [uid_of_line(line) for line in data.split(b"\n")[:-1]]


@pytest.mark.parametrize("form", Format)
def test_a_redelivered_batch_goes_on_behind_its_last_line(form: Format, output: FileOutput, path: Path) -> None:
    batch = lines(form, "p:1", "p:2", "p:3", "p:4")
    write(output, batch[:2])
    write(output, lines(form, "q:1"))
    write(output, batch, again=True)
    assert uids(path) == ["p:1", "p:2", "q:1", "p:3", "p:4"]


def test_a_redelivered_batch_is_found_in_another_format(output: FileOutput, path: Path) -> None:
    write(output, lines(Format.TEXT, "p:1", "p:2"))
    write(output, lines(Format.JSON, "p:1", "p:2", "p:3"), again=True)
    assert uids(path) == ["p:1", "p:2", "p:3"]


def test_a_message_that_quotes_a_uid_is_not_taken_for_its_event(output: FileOutput, path: Path) -> None:
    write(output, lines(Format.TEXT, "q:1", message="see uid=p:1"))
    write(output, lines(Format.TEXT, "p:1"), again=True)
    assert uids(path) == ["q:1", "p:1"]


def test_a_batch_that_was_taken_over_meanwhile_is_left_alone(output: FileOutput, path: Path) -> None:
    acknowledged = write(output, lines(Format.TEXT, "p:1"), lines(Format.TEXT, "p:2"), lost=1)
    assert acknowledged == [b"1-0"]
    assert uids(path) == ["p:2"]


@pytest.mark.parametrize("form", Format)
@pytest.mark.parametrize("cut", [1, 4, 18, 30, 60])
def test_a_line_that_a_crash_cut_off_is_written_whole(form: Format, cut: int, output: FileOutput, path: Path) -> None:
    first, second = lines(form, "p:1", "p:2")
    path.write_bytes(first.text + second.text[:cut])
    write(output, [first, second], again=True)
    assert path.read_bytes() == first.text + second.text


def test_a_line_that_only_misses_its_newline_is_written_once(output: FileOutput, path: Path) -> None:
    (first,) = lines(Format.TEXT, "p:1")
    path.write_bytes(first.text[:-1])
    write(output, [first], again=True)
    assert uids(path) == ["p:1"]


def test_somebody_elses_last_line_is_kept(output: FileOutput, path: Path) -> None:
    path.write_bytes(b"notes of mine")
    write(output, lines(Format.TEXT, "p:1"))
    assert path.read_bytes().startswith(b"notes of mine\n")
    assert uids(path) == [None, "p:1"]


def test_long_files_are_searched_back_across_chunks(
    output: FileOutput, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eventbus.workers.log_output, "CHUNK_BYTES", 100)
    found = lines(Format.TEXT, *(f"p:{n}" for n in range(50)))
    write(output, found[:30])
    with path.open("ab") as file:
        file.write(found[30].text[:-20])
    write(output, found, again=True)
    assert uids(path) == [line.uid for line in found]


@pytest.mark.parametrize("form", Format)
def test_events_that_producers_send_again_have_one_line_whoever_wrote_it(
    form: Format, output: FileOutput, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eventbus.workers.log_output, "CHUNK_BYTES", 100)
    other = open_output(str(path))
    assert isinstance(other, FileOutput)
    found = lines(form, *(f"p:{n}" for n in range(20)), "7a/b", "p:20", "q:1")
    write(other, found[3:6])
    write(output, found[:3], sent_again=True)
    write(other, found[6:12])
    write(output, found[10:], found[:3], found[4:11], sent_again=True)
    write(output, found, sent_again=True)
    other.close()
    assert sorted(uid or "" for uid in uids(path)) == sorted(line.uid for line in found)


def test_numbers_with_gaps_are_found_in_whatever_order_they_came(output: FileOutput, path: Path) -> None:
    """Other files have the events of other partitions; a number has at most 19 digits."""
    numbers = [*range(0, 300, 3), *range(100, 120), 10**19 - 1]
    Random(1).shuffle(numbers)
    for number in numbers:
        write(output, lines(Format.TEXT, f"p:{number}"), sent_again=True)
    write(output, lines(Format.TEXT, *(f"p:{number}" for number in range(300))), sent_again=True)
    assert Counter(uids(path)) == dict.fromkeys((f"p:{number}" for number in (*range(300), 10**19 - 1)), 1)


def test_of_uids_without_a_number_only_the_newest_are_known(
    output: FileOutput, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_output, "MOST_OTHERS", 2)
    write(output, lines(Format.TEXT, "a", "p:1", "b", "c"), sent_again=True)
    write(output, lines(Format.TEXT, "c", "p:1", "b", "a"), sent_again=True)
    assert uids(path) == ["a", "p:1", "b", "c", "a"]


def test_lines_that_were_rotated_away_meanwhile_are_not_written_again(output: FileOutput, path: Path) -> None:
    write(output, lines(Format.TEXT, "p:1", "p:2"), sent_again=True)
    path.rename(path.with_suffix(".1"))
    write(output, lines(Format.TEXT, "p:2", "p:3"), sent_again=True)
    assert uids(path) == ["p:3"]


def test_a_rename_is_followed(output: FileOutput, path: Path) -> None:
    write(output, lines(Format.TEXT, "p:1"))
    path.rename(path.with_suffix(".1"))
    write(output, lines(Format.TEXT, "p:2"))
    assert uids(path.with_suffix(".1")) == ["p:1"]
    assert uids(path) == ["p:2"]


def test_two_that_share_a_file_write_whole_lines(output: FileOutput, path: Path) -> None:
    other = open_output(str(path))
    assert isinstance(other, FileOutput)
    for n in range(20):
        write(output, lines(Format.TEXT, f"p:{n}"))
        write(other, lines(Format.TEXT, f"q:{n}"))
    other.close()
    assert len(set(uids(path))) == 40


def test_a_file_that_somebody_holds_is_not_waited_for_in_vain(
    output: FileOutput, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eventbus.workers.log_output, "LOCK_S", 0.05)
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(OutputUnavailable, match="is locked by a process that does not write"):
            write(output, lines(Format.TEXT, "p:1"))
    write(output, lines(Format.TEXT, "p:1"), again=True)
    assert uids(path) == ["p:1"]


def test_a_full_disk_leaves_no_half_a_batch_and_is_told(
    output: FileOutput, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    first, second = lines(Format.TEXT, "p:1"), lines(Format.TEXT, "p:2", "p:3")
    write(output, first)
    size = path.stat().st_size
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, limits[1]))
        with pytest.raises(OutputUnavailable, match=r"events\.log cannot be written"):
            write(output, second)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert path.stat().st_size == size
    write(output, second, again=True)
    assert uids(path) == ["p:1", "p:2", "p:3"]


def test_a_file_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    with pytest.raises(OutputUnavailable, match="No such file or directory"):
        open_output(str(tmp_path / "missing" / "events.log"))


def test_a_reader_that_went_away_is_noticed() -> None:
    read, written = os.pipe()
    os.close(read)
    with pytest.raises(ReaderGone):
        StreamOutput(written).write(
            [Batch(b"1-0", lines(Format.TEXT, "p:1"))], again=False, owned=lambda: Owned(frozenset())
        )
    os.close(written)
