"""A plot of bars as SVG, on a logarithmic scale: peers are orders of magnitude apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 760
NAME_WIDTH = 190
VALUE_WIDTH = 90
ROW_HEIGHT = 22
BAR_HEIGHT = 14
TITLE_HEIGHT = 40
MARGIN = 16
OURS = "#0b7285"
THEIRS = "#adb5bd"
INK = "#212529"


@dataclass(frozen=True)
class Bar:
    """One bar: what it stands for, how long it is, and what is written at its end."""

    name: str
    value: float
    text: str
    is_ours: bool


@dataclass(frozen=True)
class Panel:
    """Bars with a title, best first."""

    title: str
    bars: Sequence[Bar]


def draw(panels: Sequence[Panel]) -> str:
    """Return the SVG of panels, one below the other."""
    lines = []
    top = MARGIN
    for panel in panels:
        lines += _draw_panel(panel, top)
        top += TITLE_HEIGHT + ROW_HEIGHT * len(panel.bars) + MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" '
        f'viewBox="0 0 {WIDTH} {top}" font-family="sans-serif" font-size="13" fill="{INK}">'
    )
    background = f'<rect width="{WIDTH}" height="{top}" fill="#ffffff"/>'
    return "\n".join([head, background, *lines, "</svg>", ""])


def _draw_panel(panel: Panel, top: int) -> list[str]:
    title = f'<text x="{MARGIN}" y="{top + 18}" font-weight="bold">{escape(panel.title)}</text>'
    lines = [title]
    room = WIDTH - NAME_WIDTH - VALUE_WIDTH - 2 * MARGIN
    values = [bar.value for bar in panel.bars]
    for index, bar in enumerate(panel.bars):
        y = top + TITLE_HEIGHT + index * ROW_HEIGHT
        width = room * _share(bar.value, values)
        weight = ' font-weight="bold"' if bar.is_ours else ""
        color = OURS if bar.is_ours else THEIRS
        start, base = MARGIN + NAME_WIDTH, y + 11
        end = start + width + 6
        name, text = escape(bar.name), escape(bar.text)
        lines += [
            f'<text x="{start - 8}" y="{base}" text-anchor="end"{weight}>{name}</text>',
            f'<rect x="{start}" y="{y}" width="{width:.1f}" height="{BAR_HEIGHT}" fill="{color}"/>',
            f'<text x="{end:.1f}" y="{base}"{weight}>{text}</text>',
        ]
    return lines


def _share(value: float, values: Sequence[float]) -> float:
    """Return the length of a bar: a tenth for the smallest value, all of it for the greatest."""
    low, high = math.log(min(values)), math.log(max(values))
    if high == low:
        return 1.0
    return 0.1 + 0.9 * (math.log(value) - low) / (high - low)
