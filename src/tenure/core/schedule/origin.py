"""What a task knows of the fire that made it, and the keys of fires."""

from __future__ import annotations

import functools

import msgspec

from tenure.core.instant import instant_text
from tenure.core.limits import INSTANTS_REMEMBERED_MAX

# Many schedules are due at the same instant.
_text_of = functools.lru_cache(maxsize=INSTANTS_REMEMBERED_MAX)(instant_text)


class FireOrigin(
    msgspec.Struct, frozen=True, gc=False, rename={"schedule_id": "s", "fire_at_ms": "f"}
):
    """What a task knows of the fire that made it."""

    schedule_id: str
    fire_at_ms: int


def fire_key(schedule_id: str, fire_at_ms: int) -> str:
    """Return the key of a tick, which is the idempotency key of its task. Keys sort by time.

    >>> fire_key("nightly", 1_700_000_000_000)
    'schedule:nightly:2023-11-14T22:13:20.000Z'
    """
    return f"schedule:{schedule_id}:{_text_of(fire_at_ms)}"


def trigger_key(schedule_id: str, trigger_id: str) -> str:
    """Return the key of a trigger; no id of a schedule has a slash."""
    return f"schedule:{schedule_id}/trigger/{trigger_id}"


def skip_key(schedule_id: str, fire_id: str) -> str:
    """Return the key of a range of skipped ticks."""
    return f"schedule:{schedule_id}/skipped/{fire_id}"
