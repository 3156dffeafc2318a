"""The forms of `-o`, and the program's treatment of errors and of its table of commands."""

from __future__ import annotations

import io
import json

import click
import msgspec
import pytest
import yaml
from click.testing import CliRunner

from eventbus.cli.lazy import Lazy, command_tree
from eventbus.cli.printers.object_printer import PrintedChange, Printer, PrintOptions, make_printer
from eventbus.cli.printers.output import core_of, wants_colour, write
from eventbus.errors import BusUnavailable, ConfigError
from eventbus.model.encoding.event_json import to_core
from eventbus.model.event import Event, ObjectMeta
from eventbus.model.kinds import EVENT
from eventbus.model.list_watch import WatchEventType
from tests.builders import make_event

ONE = make_event()
TWO = make_event(metadata=ObjectMeta(name="two", namespace="shop"), message="\x1b[31mred é")


def printer(form: str) -> Printer:
    return make_printer(EVENT, PrintOptions(form=form))


def told(*events: Event) -> list[PrintedChange]:
    return [PrintedChange(WatchEventType.ADDED, event) for event in events]


def test_json_is_kubectls_list_of_whole_events() -> None:
    text = printer("json").listed([ONE, TWO])
    assert text.isascii()
    assert json.loads(text) == {
        "apiVersion": "v1",
        "items": [to_core(ONE), to_core(TWO)],
        "kind": "List",
        "metadata": {"resourceVersion": ""},
    }


def test_yaml_says_the_same_as_json() -> None:
    events = [ONE, TWO]
    as_json, as_yaml = printer("json").listed(events), printer("yaml").listed(events)
    assert yaml.safe_load(as_yaml) == json.loads(as_json)


def test_a_watch_prints_each_event_as_a_document_of_its_own() -> None:
    as_json, as_yaml = printer("json"), printer("yaml")
    assert json.loads(as_json.watched(told(ONE))) == to_core(ONE)
    text = as_yaml.watched(told(ONE, TWO)) + as_yaml.watched(told(ONE))
    assert list(yaml.safe_load_all(text)) == [to_core(ONE), to_core(TWO), to_core(ONE)]


def test_names_are_kubectls() -> None:
    assert printer("name").listed([TWO]) == "event/two\n"


def test_the_header_of_a_watch_comes_once() -> None:
    table = make_printer(EVENT, PrintOptions(namespaces=True))
    text = table.watched([]) + table.watched(told(ONE)) + table.watched(told(TWO))
    assert text.count("NAMESPACE") == 1
    assert text.startswith("NAMESPACE   LAST SEEN   TYPE     REASON    OBJECT      COUNT   MESSAGE\n")
    assert "\x1b" not in text


def test_an_event_with_nul_is_still_printed() -> None:
    event = msgspec.structs.replace(ONE, message="a\0b")
    assert core_of(event)["message"] == "a\N{REPLACEMENT CHARACTER}b"


def test_text_that_the_terminal_cannot_show_is_escaped() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="latin-1")
    write("é日\n", stream)
    assert raw.getvalue() == b"\xe9\\u65e5\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environ", "coloured"),
    [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_colours_are_for_terminals_that_want_them(environ: dict[str, str], coloured: bool) -> None:
    assert wants_colour(Terminal(), environ) is coloured
    assert not wants_colour(io.StringIO(), environ)


@click.command()
@click.argument("what")
def failing(what: str) -> None:
    raise {"now": BusUnavailable("not now\x1b"), "never": ConfigError("never"), "stop": KeyboardInterrupt()}[what]


@pytest.mark.parametrize(
    ("what", "code", "said"), [("now", 1, "error: not now\\x1b\n"), ("never", 2, "error: never\n"), ("stop", 130, "")]
)
def test_an_error_of_the_bus_is_one_line_and_its_exit_code(what: str, code: int, said: str) -> None:
    program = command_tree(
        "p",
        {"deep": "."},
        {"deep failing": Lazy(f"{__name__}:failing", ".")},
        help=".",
        aliases={},
        unknown={},
        reworded={},
    )
    result = CliRunner().invoke(program, ["deep", "failing", what])
    assert (result.exit_code, result.stderr, result.stdout) == (code, said, "")
