"""Aligns columns of text as kubectl does. Knows nothing about events."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

import msgspec

from eventbus.util.text import printable


class Colour(StrEnum):
    """The colour of a cell; the value is the number of ANSI's SGR."""

    PLAIN = ""
    YELLOW = "33"


class Cell(NamedTuple):
    """A text with a colour. The text comes from outside; only the table makes it printable."""

    text: str
    colour: Colour = Colour.PLAIN


Row: TypeAlias = Sequence[str | Cell]


_LINE_BREAK: Final = re.compile("[\f\n\r]")


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The layout of columns: widths and gaps, in characters of a terminal."""

    padding: int = 3  #: spaces between a cell and the next column, at least
    min_column: int = 6  #: narrowest column, padding included
    indent: int = 0  #: spaces before each line
    upper_case_header: bool = True
    first_lines: bool = False  #: of a cell with line breaks the first line is shown, and that there is more


#: Of `kubectl get` and `kubectl events` (cli-runtime's tab writer: least width 6, padding 3).
LISTING: Final = Layout()
#: Of the first alone. Source: cli-runtime `printers/tableprinter.go`.
FIRST_LINES: Final = Layout(first_lines=True)


class Table:
    """Lines up rows that come at once or, as under `-w`, one by one.

    The first rows fix the widths. Later cells may be wider: their line goes on further right, the next is in
    line again. The last column is never padded. Cells are made printable: one line a row, no control characters.
    """

    def __init__(self, headers: Sequence[str], *, no_headers: bool = False, layout: Layout = LISTING) -> None:
        self._layout = layout
        self._widths: list[int] | None = None
        self._header: list[Cell] | None = None
        if not no_headers:
            self._header = [self._cell(name.upper() if layout.upper_case_header else name) for name in headers]

    def text(self, rows: Iterable[Row], *, even_without_rows: bool = False) -> str:
        """Format *rows*, after the header the first time.

        Args:    even_without_rows: the header is printed also where there is no row.
        Returns: whole lines, each with its newline; else empty, and no header used up, if there is no row.
        """
        lines = [[self._cell(cell) for cell in row] for row in rows]
        if (lines or even_without_rows) and self._header is not None:
            lines.insert(0, self._header)
            self._header = None
        if lines and self._widths is None:
            self._widths = self._column_widths(lines)
        return "".join(f"{self._line(cells)}\n" for cells in lines)

    def _cell(self, cell: str | Cell) -> Cell:
        if not isinstance(cell, Cell):
            cell = Cell(cell)
        if self._layout.first_lines and (end := _LINE_BREAK.search(cell.text)):
            cell = cell._replace(text=f"{cell.text[: end.start()]}...")
        return cell._replace(text=printable(cell.text))

    def _column_widths(self, lines: Iterable[Sequence[Cell]]) -> list[int]:
        widths: list[int] = []
        for cells in lines:
            widths += [self._layout.min_column] * (len(cells) - len(widths))
            for column, cell in enumerate(cells):
                widths[column] = max(widths[column], display_width(cell.text) + self._layout.padding)
        return widths

    def _line(self, cells: Sequence[Cell]) -> str:
        padded = [self._padded(column, cell) for column, cell in enumerate(cells[:-1])]
        return " " * self._layout.indent + "".join(padded) + "".join(map(_coloured, cells[-1:]))

    def _padded(self, column: int, cell: Cell) -> str:
        widths = self._widths or []
        width = widths[column] if column < len(widths) else self._layout.min_column
        return _coloured(cell) + " " * max(width - display_width(cell.text), self._layout.padding)


def format_table(
    headers: Sequence[str], rows: Iterable[Row], *, no_headers: bool = False, layout: Layout = LISTING
) -> str:
    """Format a whole table at once. Returns: whole lines; empty, without a header, if there is no row."""
    return Table(headers, no_headers=no_headers, layout=layout).text(rows)


def display_width(text: str) -> int:
    """Count the columns a terminal gives *text*: two for East Asian wide characters, none for combining ones.

    Sequences that a font joins (flags, families of emoji) are counted by their parts.
    """
    if text.isascii():
        return len(text)
    return sum(map(_character_width, text))


def _character_width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _coloured(cell: Cell) -> str:
    # Padding stays outside: a coloured background or underline must not reach into the gap.
    return f"\x1b[{cell.colour}m{cell.text}\x1b[0m" if cell.colour else cell.text
