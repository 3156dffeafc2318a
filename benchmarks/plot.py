"""One plot, as SVG text: events a second, ours beside the peers and the ceilings, on a logarithmic scale."""

from __future__ import annotations

from html import escape
from math import log10

from benchmarks.table import OURS, Collected

WIDTH, LEFT, BAR, GAP = 760, 190, 16, 6
#: The scale's ends, in events a second.
LOW, HIGH = 1_000, 1_000_000
PANELS = (("publish", ("publish",), "Publish, one process, until the server has them"),
          ("consume", ("consume", "fan-out"), "Consume: decoded, handled, acknowledged, one worker"))  # fmt: skip


def draw(collected: Collected) -> str:
    """The picture; colours are legible on white and on black."""
    parts: list[str] = []
    top = 10
    for _, cases, heading in PANELS:
        bars = _bars(collected, cases)
        parts.append(f'<text x="10" y="{top + 14}" font-weight="bold">{escape(heading)}, events/s</text>')
        top += 26
        bottom = top + len(bars) * (BAR + GAP)
        for power in range(3, 7):
            x = _x(10.0**power)
            parts.append(f'<path d="M{x:.0f} {top}V{bottom}" stroke="#999" stroke-width=".5"/>')
            parts.append(f'<text x="{x:.0f}" y="{bottom + 12}" text-anchor="middle">{10**power:,}</text>')
        for name, rate in bars:
            colour = "#1f77b4" if name == OURS else "#8c8c8c"
            parts.append(f'<text x="{LEFT - 8}" y="{top + 13}" text-anchor="end">{escape(name)}</text>')
            parts.append(
                f'<rect x="{LEFT}" y="{top}" width="{_x(rate) - LEFT:.1f}" height="{BAR}" fill="{colour}"/>'
                f'<text x="{_x(rate) + 5:.1f}" y="{top + 13}">{rate:,.0f}</text>'
            )
            top += BAR + GAP
        top = bottom + 30
    style = 'font-family="sans-serif" font-size="12" fill="#555"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" height="{top}" {style}>'
        f'<rect width="{WIDTH}" height="{top}" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _bars(collected: Collected, cases: tuple[str, ...]) -> list[tuple[str, float]]:
    """Everybody's best way, the fastest first."""
    best: dict[str, float] = {}
    for key in collected.rows:
        rate = collected.median(key.case, key.who, "rate") if key.case in cases else None
        if rate:
            best[key.who] = max(best.get(key.who, 0.0), rate)
    return sorted(best.items(), key=lambda bar: -bar[1])


def _x(rate: float) -> float:
    share = (log10(max(LOW, min(rate, HIGH))) - log10(LOW)) / (log10(HIGH) - log10(LOW))
    return LEFT + share * (WIDTH - LEFT - 70)
