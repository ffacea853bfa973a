"""The data of the package ``tzdata``: which time zones there are, and what they are ahead of UTC.

The data of the machine are never read: servers with the same packages agree about every instant,
and an update of the system changes none. Reading them is like an import: they come from an
installed package, once per process, by names that the package itself lists.
"""

from __future__ import annotations

import functools
from datetime import UTC, datetime, timedelta
from importlib import resources
from typing import Final
from zoneinfo import ZoneInfo

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Tens of KiB each; other zones are read again.
_ZONES_REMEMBERED: Final = 64


@functools.cache
def zone_names() -> frozenset[str]:
    """Return the names of all zones, such as ``Europe/Berlin``."""
    return frozenset(resources.files("tzdata").joinpath("zones").read_text("ascii").split())


def offset_s(name: str, at_s: int) -> int:
    """Return what the clock of a zone is ahead of UTC, in seconds, at seconds since the epoch."""
    offset = (_EPOCH + timedelta(seconds=at_s)).astimezone(_zone(name)).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


@functools.lru_cache(maxsize=_ZONES_REMEMBERED)
def _zone(name: str) -> ZoneInfo:
    assert name in zone_names()
    path = resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))
    with path.open("rb") as file:
        return ZoneInfo.from_file(file, key=name)
