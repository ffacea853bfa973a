"""Rules around each change of a clock, from 2024 to 2030, compared with a walk over UTC."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

from tenure.core.schedule.ticks import between, newest, of_cron
from tests.core.schedule.model import Model, changes, zone_of

FIRST_YEAR: Final = 2024
LAST_YEAR: Final = 2030
# At least so many changes; Kolkata never does. Governments decide, so there may be others.
CHANGES: Final = {
    "Europe/Berlin": 14,
    "America/New_York": 14,
    "Australia/Lord_Howe": 14,
    "America/Santiago": 14,
    "Africa/Casablanca": 6,
    "Asia/Kolkata": 0,
}
# Looked at in a zone without changes.
ANY_INSTANT_S: Final = int(datetime(2027, 1, 1, tzinfo=UTC).timestamp())
_ALL: Final = range(60)
_MOST: Final = 10**6
Walk = Callable[[Model, ZoneInfo, int, int], Iterator[int]]


def _model(text: str, minutes: range | set[int], hours: range | set[int] | None) -> Model:
    """Return the model of a rule for every day."""
    return Model(
        text=text,
        seconds=frozenset({0}),
        minutes=frozenset(minutes),
        hours=None if hours is None else frozenset(hours),
        months=frozenset(range(1, 13)),
        years=frozenset(range(1970, 2100)),
        day_of_month=None,
        day_of_week=None,
    )


RULES: Final = (
    _model("30 2 * * *", {30}, {2}),
    _model("15 1,2,3 * * *", {15}, {1, 2, 3}),
    _model("*/20 2 * * *", range(0, 60, 20), {2}),
    _model("0 */2 * * *", {0}, range(0, 24, 2)),
    _model("45 0-23 * * *", {45}, range(24)),
    _model("10 * * * *", {10}, None),
    _model("*/30 * * * *", {0, 30}, None),
    _model("0 0 * * *", {0}, {0}),
    _model("* 0-4 * * *", _ALL, range(5)),
    _model("* * * * *", _ALL, None),
)


def instants(name: str) -> list[int]:
    """Return the changes of a zone, or any instant if it has none."""
    return changes(zone_of(name), FIRST_YEAR, LAST_YEAR) or [ANY_INSTANT_S]


def complaints(name: str, change_s: int, around_s: int, walk: Walk) -> list[str]:
    """Compare all rules around one change of a zone."""
    zone = zone_of(name)
    from_s, to_s = change_s - around_s, change_s + around_s
    after_ms, until_ms = from_s * 1_000 - 1, to_s * 1_000 - 1
    found = []
    for rule in RULES:
        ticks = of_cron(rule.text, name)
        expected = [at_s * 1_000 for at_s in walk(rule, zone, from_s, to_s)]
        said = (
            between(ticks, after_ms, until_ms, _MOST),
            newest(ticks, after_ms, until_ms, _MOST),
            ticks.count(after_ms, until_ms, _MOST),
        )
        if said != (expected, expected, len(expected)):
            found.append(f"{rule.text!r} in {name} around {change_s}: {said}, walked {expected}")
    return found
