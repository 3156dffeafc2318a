"""docs/wire.md says what wire.py does, and its reader reads a real bus."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import lz4.block
import msgpack

from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.model.encoding.wire import (
    MAX_BATCH_BYTES,
    MAX_BATCH_EVENTS,
    MAX_EVENT_BYTES,
    SCHEMA_VERSION,
    WireEvent,
    pack_batch,
    pack_event,
)
from eventbus.model.event import ObjectReference
from eventbus.model.formats import CODEC_LZ4, CODEC_NONE
from tests.builders import make_event, make_reference
from tests.functions.partition import Partition

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "wire.md").read_text("utf-8")


def table(heading: str) -> list[list[str]]:
    """The cells of the first table below *heading*, without its header."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def snake(field: str) -> str:
    return re.sub(r"([A-Z])", r"_\1", field.rpartition(".")[2]).lower()


def reader() -> str:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    return str(code)


#: Words that differ: the array's times say their unit.
OURS = {
    "first_timestamp": "first_us",
    "last_timestamp": "last_us",
    "event_time": "event_us",
}


def test_the_positions_are_those_of_the_array() -> None:
    rows = table("An event")
    assert [int(position) for position, *_ in rows] == list(range(len(WireEvent.__struct_fields__)))
    fields = [snake(field) for _, field, *_ in rows]
    assert [OURS.get(field, field) for field in fields] == list(WireEvent.__struct_fields__)


def test_the_defaults_are_those_of_the_array() -> None:
    defaults = {"nil": None, "empty": "", "0": 0, "1": 1}
    said = [defaults[default] for _, _, _, default in table("An event") if default]
    assert tuple(said) == WireEvent.__struct_defaults__


def test_the_fields_of_a_reference_are_in_its_order() -> None:
    (listed,) = re.findall(r"trailing empty ones left out: ([^.]*)\.", PAGE.replace("\n", " "))
    reference = ObjectReference(*[snake(field.strip()) for field in listed.split(",")])
    fields = ObjectReference.__struct_fields__
    assert {field: getattr(reference, field) for field in fields} == {field: field for field in fields}
    packed = msgpack.unpackb(pack_event(make_event(involved_object=reference)))
    assert packed[2] == [snake(field.strip()) for field in listed.split(",")]


def test_the_limits_are_the_limits() -> None:
    limits = {what: int(most) for what, most in table("Limits")}
    assert limits["events in a batch"] == MAX_BATCH_EVENTS
    assert limits["bytes of a batch"] == MAX_BATCH_BYTES
    assert limits["bytes of its events' array, opened"] == MAX_BATCH_BYTES
    assert limits["bytes of a packed event"] == MAX_EVENT_BYTES


def test_the_batch_is_the_array_of_five() -> None:
    packed = pack_event(make_event())
    version, producer, first, codec, events = msgpack.unpackb(pack_batch("p", 7, [packed]))
    assert (version, producer, first, codec, events) == (SCHEMA_VERSION, "p", 7, CODEC_NONE, [packed])
    version, producer, first, codec, block = msgpack.unpackb(pack_batch("p", 7, [packed] * 64))
    assert (version, producer, first, codec) == (SCHEMA_VERSION, "p", 7, CODEC_LZ4)
    assert msgpack.unpackb(lz4.block.decompress(block)) == [packed] * 64
    assert len(table("A record batch")) == 5
    assert f"the integer {SCHEMA_VERSION}" in table("A record batch")[0][1]


def test_the_fields_of_an_entry_are_those_that_publish_writes(embedded_url: str, prefix: str) -> None:
    partition = Partition(embedded_url, prefix)
    partition.publish(make_event(), make_event())
    ((_, fields),) = partition.admin.xrange(partition.keys.incoming)
    partition.close()
    said = {field.strip("`") for field, _ in table("A stream entry")}
    assert said == {field.decode() for field in fields} | {"g", "l", "r", "x"}


def test_the_reader_is_twenty_lines_or_so_of_well_known_packages() -> None:
    assert len([line for line in reader().splitlines() if line.strip()]) <= 24
    assert set(re.findall(r"^(?:import|from) (\w+)", reader(), re.MULTILINE)) == {"sys", "lz4", "msgpack", "redis"}


def test_the_reader_reads_a_real_bus_poison_and_all(short_path: Path, tmp_path: Path) -> None:
    server = EmbeddedServer(short_path)
    partition = Partition(server.start(), "wire")
    program = tmp_path / "reader.py"
    program.write_text(reader(), "utf-8")
    web_1 = make_event(involved_object=make_reference(name="web-1"), message="Größe: 3 GiB")
    process = None
    try:
        partition.publish(make_event(), b"poison", web_1)
        partition.admin.xadd(partition.keys.incoming, {"x": "not ours"})
        partition.admin.xadd(partition.keys.incoming, {"b": "\xc1"})
        partition.admin.xadd(partition.keys.incoming, {"b": pack_batch("p9", 1, [pack_event(web_1)]), "g": "sink"})
        partition.admin.xadd(partition.keys.incoming, {"b": msgpack.packb([2, "p9", 1, [pack_event(web_1)]])})
        process = subprocess.Popen(
            [sys.executable, str(program), partition.url, "wire"], stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
        assert process.stdout is not None
        read = [process.stdout.readline() for _ in range(2)]
        partition.publish(make_event(reason="Late", message="it came while it read"))
        read.append(process.stdout.readline())
        assert read == [
            "p1:1 default/Pod/web-0 Started Started container web\n",
            "p1:3 default/Pod/web-1 Started Größe: 3 GiB\n",
            "p1:4 default/Pod/web-0 Late it came while it read\n",
        ]
        partition.publish(*[make_event(reason="Many", message=f"{n} of them, compressed") for n in range(64)])
        many = [process.stdout.readline() for _ in range(64)]
        assert many == [f"p1:{5 + n} default/Pod/web-0 Many {n} of them, compressed\n" for n in range(64)]
        assert process.poll() is None
    finally:
        if process is not None:
            process.kill()
            process.communicate()
        partition.close()
        server.stop()
