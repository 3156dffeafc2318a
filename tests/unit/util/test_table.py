"""kubectl's tab writer: least width 6 with padding 3; the expected text is laid out by hand."""

from __future__ import annotations

import pytest

from eventbus.util.table import FIRST_LINES, Cell, Colour, Layout, Table, display_width, format_table

EXPECTED = """\
LAST SEEN   TYPE      REASON      MESSAGE
3m27s       Warning   BackOff     Back-off restarting failed container
11m         Normal    Scheduled   Successfully assigned default/web-0 to node-1
"""
ROWS = [
    ("3m27s", "Warning", "BackOff", "Back-off restarting failed container"),
    ("11m", "Normal", "Scheduled", "Successfully assigned default/web-0 to node-1"),
]
HEADERS = ("Last Seen", "Type", "Reason", "Message")


def test_columns_are_as_wide_as_their_widest_cell_and_three_spaces_apart() -> None:
    assert format_table(HEADERS, ROWS) == EXPECTED


def test_without_headers_their_widths_do_not_count_either() -> None:
    assert format_table(HEADERS, ROWS, no_headers=True) == (
        "3m27s   Warning   BackOff     Back-off restarting failed container\n"
        "11m     Normal    Scheduled   Successfully assigned default/web-0 to node-1\n"
    )


def test_no_column_but_the_last_is_narrower_than_six() -> None:
    assert format_table(("a", "b", "c"), [("x", "yy", "z")], no_headers=True) == "x     yy    z\n"


def test_an_empty_cell_keeps_its_column() -> None:
    assert format_table(("One", "Two", "Three"), [("1", "", "3")]) == "ONE   TWO   THREE\n1           3\n"


def test_without_rows_there_is_no_header() -> None:
    assert format_table(HEADERS, []) == ""


def test_another_layout_may_indent_and_keep_the_case_of_the_header() -> None:
    layout = Layout(padding=2, min_column=0, indent=2, upper_case_header=False)
    assert format_table(("Type", "A"), [("Normal", "b")], layout=layout) == "  Type    A\n  Normal  b\n"


def test_rows_that_come_later_stand_under_the_first_without_a_second_header() -> None:
    table = Table(HEADERS)
    assert table.text([]) == ""
    assert table.text(ROWS[:1]) + table.text([]) + table.text([("5s", "Normal", "Pulled", "done")]) == (
        "LAST SEEN   TYPE      REASON    MESSAGE\n"
        "3m27s       Warning   BackOff   Back-off restarting failed container\n"
        "5s          Normal    Pulled    done\n"
    )


def test_a_later_cell_that_is_too_wide_moves_only_its_own_line() -> None:
    table = Table(("Reason", "Object", "Message"))
    table.text([("Pulled", "pod/web-0", "first")])
    assert table.text([("FailedScheduling", "pod/web-0", "second"), ("Pulled", "pod/web-0", "third")]) == (
        "FailedScheduling   pod/web-0   second\nPulled   pod/web-0   third\n"
    )


@pytest.mark.parametrize("text", ["one\ntwo", "one\r\ntwo", "one\ftwo\nthree", "one\n"])
def test_of_a_cell_with_line_breaks_the_first_line_is_shown_where_that_is_asked_for(text: str) -> None:
    assert format_table(["a"], [[text]], no_headers=True, layout=FIRST_LINES) == "one...\n"
    coloured = format_table(["a"], [[Cell(text, Colour.YELLOW)]], no_headers=True, layout=FIRST_LINES)
    assert coloured == "\x1b[33mone...\x1b[0m\n"
    assert "two" in format_table(["a"], [["one\vtwo\x1b"]], layout=FIRST_LINES)  # no line break of theirs


def test_text_from_outside_cannot_break_a_line_or_reach_the_terminal() -> None:
    rows = [("\x1b[2Jx", "two\nlines\tand \u202ebackwards"), ("y", "ok")]
    assert format_table(("A", "Message"), rows) == (
        "A          MESSAGE\n\\x1b[2Jx   two\\x0alines\\x09and \\u202ebackwards\ny          ok\n"
    )


def test_a_coloured_cell_takes_as_much_room_as_a_plain_one() -> None:
    rows = [(Cell("Warning", Colour.YELLOW), "first"), (Cell("Normal"), "second")]
    assert format_table(("Type", "Message"), rows) == (
        "TYPE      MESSAGE\n\x1b[33mWarning\x1b[0m   first\nNormal    second\n"
    )


def test_a_coloured_cell_is_made_printable_inside_its_colour() -> None:
    assert format_table(("A",), [(Cell("\x1b[0m!", Colour.YELLOW),)], no_headers=True) == ("\x1b[33m\\x1b[0m!\x1b[0m\n")


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("", 0),
        ("pod/web-0", 9),
        ("déjà", 4),
        ("de\u0301ja\u0300", 4),
        ("日本", 4),
        ("ＡＢ", 4),
        ("한국어", 6),
        ("🚀 up", 5),
        ("a\u200bb", 2),
    ],
)
def test_the_width_is_that_of_a_terminal(text: str, columns: int) -> None:
    assert display_width(text) == columns


def test_wide_characters_do_not_push_the_next_column() -> None:
    assert format_table(("Object", "Message"), [("pod/日本", "wide"), ("pod/abcd", "narrow")]) == (
        "OBJECT     MESSAGE\npod/日本   wide\npod/abcd   narrow\n"
    )
