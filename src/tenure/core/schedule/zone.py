"""Time zones: how far a local clock is from UTC, and between which instants.

The data come from `tenure.zone_data`; each server has the same.
"""

from __future__ import annotations

import functools
from typing import Final, NamedTuple

from tenure.core import check
from tenure.core.limits import TICKS_END_MS, ZONE_BYTES_MAX, ZONE_YEARS_REMEMBERED_MAX
from tenure.errors import InvalidArgument
from tenure.zone_data import offset_s, zone_names

UTC_NAME: Final = "UTC"

_END_S: Final = TICKS_END_MS // 1_000
_YEAR_S: Final = 366 * 86_400
# No zone changes twice within so short a time: the two closest changes are almost 7 days apart, and
# a test looks at all of them.
_STEP_S: Final = 3 * 86_400


class Span(NamedTuple):
    """A time with one offset: from the start on and before the end, in seconds since the epoch.

    ``offset_s`` is what the local clock is ahead of UTC. Directly before the start it was
    ``before_s``; that is the same where a span begins without a change.
    """

    start_s: int
    end_s: int
    offset_s: int
    before_s: int


class Zone:
    """A time zone, by the name that it has in the IANA database."""

    def __init__(self, name: str) -> None:
        self.name = name

    def span(self, at_s: int) -> Span:
        """Return a time around this instant without a change; it need not be the longest one."""
        assert 0 <= at_s < _END_S
        spans = reversed(_spans(self.name, at_s // _YEAR_S))
        return next(span for span in spans if span.start_s <= at_s)

    def offset_s(self, at_s: int) -> int:
        """Return what the local clock is ahead of UTC at an instant."""
        return self.span(at_s).offset_s


def find_zone(name: str) -> Zone:
    """Return the zone of a name such as ``UTC`` or ``Europe/Berlin``.

    Raises `InvalidArgument` with field ``zone``. The name is looked up in a list and never becomes
    a path before.
    """
    checked = check.text(name, "zone", bytes_max=ZONE_BYTES_MAX)
    if checked not in zone_names():
        raise InvalidArgument(
            "zone must be UTC or a name of the IANA time zone database, such as Europe/Berlin",
            field="zone",
        )
    return Zone(checked)


@functools.lru_cache(maxsize=ZONE_YEARS_REMEMBERED_MAX)
def _spans(name: str, year: int) -> tuple[Span, ...]:
    """Return the spans of 366 days, counted from the epoch."""
    start, end = year * _YEAR_S, min((year + 1) * _YEAR_S, _END_S)
    offset = offset_s(name, start)
    spans = [Span(start, end, offset, offset_s(name, start - 1))]
    for after in range(start + _STEP_S, end + _STEP_S, _STEP_S):
        at = min(after, end - 1)
        changed_to = offset_s(name, at)
        if changed_to != spans[-1].offset_s:
            change = _change(name, after - _STEP_S, at)
            spans[-1] = spans[-1]._replace(end_s=change)
            spans.append(Span(change, end, changed_to, spans[-1].offset_s))
    return tuple(spans)


def _change(name: str, before_s: int, after_s: int) -> int:
    """Return the first second with the later of two offsets."""
    before = offset_s(name, before_s)
    while after_s - before_s > 1:
        middle = (before_s + after_s) // 2
        if offset_s(name, middle) == before:
            before_s = middle
        else:
            after_s = middle
    return after_s
