"""Whether the ticks of a random rule, found from either side, are those of a walk."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from tenure.core.schedule.ticks import CronTicks, between, newest, of_cron
from tenure.errors import InvalidArgument
from tests.core.schedule import random_rule
from tests.core.schedule.model import DAY_S, Model, changes, may_tick, walk_minutes, zone_of

# Changes of an hour and of half an hour, at midnight, of a whole day, at odd times, and none.
ZONES: Final = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Santiago",
    "Africa/Casablanca",
    "Asia/Kolkata",
    "Asia/Gaza",
    "Pacific/Apia",
    "Antarctica/Troll",
)
END_DAY: Final = 47_482
AROUND_S: Final = 3_600
FIRST_AT_S: Final = 5 * 366 * DAY_S
_found_changes: dict[str, list[int]] = {}


class Outcome(NamedTuple):
    """What is wrong with a rule, if something is, and its slowest call."""

    complaint: str
    slowest_s: float
    text: str


def check_random_rule(seed: int) -> Outcome:
    """Make a rule from a seed, and compare what is next, previous and around with a walk."""
    rng = random.Random(seed)
    model = random_rule.make(rng)
    name = rng.choice(ZONES)
    zone = zone_of(name)
    at_s = _instant(rng, name, zone)
    began = time.perf_counter()
    try:
        ticks = of_cron(model.text, name)
    except InvalidArgument as refused:
        took_s = time.perf_counter() - began
        is_right = not any(may_tick(model, zone, day) for day in range(END_DAY))
        return Outcome("" if is_right else f"{model.text!r}: {refused}", took_s, model.text)
    made = time.perf_counter()
    following = ticks.after(at_s * 1_000)
    looked = time.perf_counter()
    newest_tick = ticks.until(at_s * 1_000)
    slowest_s = max(made - began, looked - made, time.perf_counter() - looked)
    said = (following, newest_tick, *_around(ticks, at_s))
    expected = (_next(model, zone, at_s), _previous(model, zone, at_s), *_walked(model, zone, at_s))
    complaint = "" if said == expected else f"{model.text!r} in {name} at {at_s}: {said} {expected}"
    return Outcome(complaint, slowest_s, model.text)


def _instant(rng: random.Random, name: str, zone: ZoneInfo) -> int:
    """Return any second, or one around a change of the zone."""
    if name not in _found_changes:
        _found_changes[name] = changes(zone, 2005, 2030)
    found = _found_changes[name]
    if found and rng.random() < 0.5:
        return rng.choice(found) + rng.randint(-2 * AROUND_S, 2 * AROUND_S)
    return rng.randrange(FIRST_AT_S, END_DAY * DAY_S)


def _around(ticks: CronTicks, at_s: int) -> tuple[list[int], list[int], int]:
    from_ms, to_ms = (each * 1_000 - 1 for each in _window(at_s))
    return (
        between(ticks, from_ms, to_ms, 10**6),
        newest(ticks, from_ms, to_ms, 10**6),
        ticks.count(from_ms, to_ms, 10**6),
    )


def _walked(model: Model, zone: ZoneInfo, at_s: int) -> tuple[list[int], list[int], int]:
    found = [each * 1_000 for each in walk_minutes(model, zone, *_window(at_s))]
    return found, found, len(found)


def _window(at_s: int) -> tuple[int, int]:
    from_s = at_s // 60 * 60 - AROUND_S
    return from_s, min(from_s + 2 * AROUND_S, END_DAY * DAY_S)


def _next(model: Model, zone: ZoneInfo, at_s: int) -> int | None:
    days = range(at_s // DAY_S, END_DAY)
    later = (each for each in _ticks_of(model, zone, days) if each > at_s)
    found = next(later, None)
    return None if found is None else found * 1_000


def _previous(model: Model, zone: ZoneInfo, at_s: int) -> int | None:
    for day in range(at_s // DAY_S, -1, -1):
        earlier = [each for each in _ticks_of(model, zone, range(day, day + 1)) if each <= at_s]
        if earlier:
            return earlier[-1] * 1_000
    return None


def _ticks_of(model: Model, zone: ZoneInfo, days: range) -> Iterator[int]:
    for day in days:
        if may_tick(model, zone, day):
            yield from walk_minutes(model, zone, day * DAY_S, (day + 1) * DAY_S)
