"""The table at the end of a run: fault, runs, events, lost, counted, duplicate, recovery seconds, control."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

HEADERS = ("fault", "runs", "events", "lost", "counted", "duplicate", "recovery s", "control")


class Row(msgspec.Struct):
    """One fault; *lost* silently; *told*: missing, and counted or said; *control*: what its control runs did."""

    fault: str
    runs: int = 0
    events: int = 0
    lost: int = 0
    duplicate: int = 0
    recovery_s: float | None = None  #: the longest; None: never measured
    control: str = ""
    told: int = 0
    remark: str = ""  #: what else is worth knowing, below the table

    def add(self, other: Row) -> None:
        self.runs += other.runs
        self.events += other.events
        self.lost += other.lost
        self.told += other.told
        self.duplicate += other.duplicate
        measured = [row.recovery_s for row in (self, other) if row.recovery_s is not None]
        self.recovery_s = max(measured, default=None)
        self.control = "; ".join(filter(None, (self.control, other.control)))
        self.remark = "; ".join(filter(None, (self.remark, other.remark)))


def format_rows(rows: Iterable[Row]) -> str:
    """Format rows as Markdown, fit for docs/reliability.md; rows of one fault are summed up.

    Remarks follow as a list.
    """
    summed: dict[str, Row] = {}
    for row in rows:
        if row.fault in summed:
            summed[row.fault].add(row)
        else:
            summed[row.fault] = msgspec.structs.replace(row)
    cells = [HEADERS] + [
        (
            row.fault,
            *map(str, (row.runs, row.events, row.lost, row.told, row.duplicate)),
            "-" if row.recovery_s is None else f"{row.recovery_s:.1f}",
            row.control or "-",
        )
        for row in sorted(summed.values(), key=_order)
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADERS))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    remarks = [f"- {row.fault}: {row.remark}" for row in sorted(summed.values(), key=_order) if row.remark]
    return "\n".join([*lines, *([""] if remarks else []), *remarks]) + "\n"


def _order(row: Row) -> tuple[int, str]:
    digits = "".join(character for character in row.fault.split(" ")[0] if character.isdigit())
    return int(digits or 0), row.fault
