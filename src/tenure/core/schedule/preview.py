"""The next fires of a rule, as people check them: in UTC and on the local clock."""

from __future__ import annotations

import msgspec

from tenure.core import check
from tenure.core.instant import instant_text
from tenure.core.limits import PREVIEW_FIRES_MAX
from tenure.core.schedule.ticks import Ticks, between
from tenure.core.schedule.zone import Zone


class PlannedFire(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One fire to come. ``local`` is its local time with the offset of the zone, as RFC 3339."""

    fire_at_ms: int
    utc: str
    local: str


def next_fires(
    ticks: Ticks, zone: Zone, after_ms: int, until_ms: int, count: int
) -> list[PlannedFire]:
    """Return the next fires in ``(after, until]``, oldest first.

    Raises `InvalidArgument` with field ``count`` if it is not from 1 to 100.
    """
    most = check.integer(count, "count", 1, PREVIEW_FIRES_MAX)
    return [
        PlannedFire(fire_at_ms=tick, utc=instant_text(tick), local=local_text(zone, tick))
        for tick in between(ticks, after_ms, until_ms, most)
    ]


def local_text(zone: Zone, at_ms: int) -> str:
    """Return an instant on the local clock of a zone: ``2026-03-29T03:00:00.000+02:00``.

    RFC 3339 has no seconds in an offset. The last zone that had some left them in 1972.
    """
    minutes = zone.offset_s(at_ms // 1_000) // 60
    hour, minute = divmod(abs(minutes), 60)
    local = instant_text(at_ms + minutes * 60_000).removesuffix("Z")
    return f"{local}{'-' if minutes < 0 else '+'}{hour:02d}:{minute:02d}"
