"""Rules around each change of a clock, compared with a walk over UTC."""

from __future__ import annotations

import pytest

from tenure.core.schedule.ticks import CronTicks, between, newest, of_cron
from tests.core.schedule.model import Model, changes, walk_minutes, zone_of

FIRST_YEAR, LAST_YEAR = 2024, 2030
# At least so many changes; Kolkata never does. Governments decide, so there may be others.
CHANGES = {
    "Europe/Berlin": 14,
    "America/New_York": 14,
    "Australia/Lord_Howe": 14,
    "America/Santiago": 14,
    "Africa/Casablanca": 6,
    "Asia/Kolkata": 0,
}
AROUND_S = 4 * 3600
ALL = range(60)


def model(text: str, minutes: range | set[int], hours: range | set[int] | None) -> Model:
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


RULES = [
    model("30 2 * * *", {30}, {2}),
    model("15 1,2,3 * * *", {15}, {1, 2, 3}),
    model("*/20 2 * * *", range(0, 60, 20), {2}),
    model("0 */2 * * *", {0}, range(0, 24, 2)),
    model("45 0-23 * * *", {45}, range(24)),
    model("10 * * * *", {10}, None),
    model("*/30 * * * *", {0, 30}, None),
    model("0 0 * * *", {0}, {0}),
    model("* 0-4 * * *", ALL, range(5)),
    model("* * * * *", ALL, None),
]


def windows(name: str) -> list[tuple[int, int]]:
    zone = zone_of(name)
    found = changes(zone, FIRST_YEAR, LAST_YEAR) or [1_774_746_000]
    return [(at_s - AROUND_S, at_s + AROUND_S) for at_s in found]


def test_every_change_of_these_years_is_looked_at() -> None:
    for name, least in CHANGES.items():
        assert len(changes(zone_of(name), FIRST_YEAR, LAST_YEAR)) >= least, name


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.text)
def test_ticks_around_a_change_are_those_of_a_walk(name: str, rule: Model) -> None:
    zone = zone_of(name)
    ticks = of_cron(rule.text, name)
    for from_s, to_s in windows(name):
        expected = [at_s * 1_000 for at_s in walk_minutes(rule, zone, from_s, to_s)]
        agree(ticks, expected, from_s * 1_000 - 1, to_s * 1_000 - 1)


def agree(ticks: CronTicks, expected: list[int], after_ms: int, until_ms: int) -> None:
    """Check that the ticks from either side and their number are those expected."""
    assert between(ticks, after_ms, until_ms, 10**6) == expected
    assert newest(ticks, after_ms, until_ms, 10**6) == expected
    assert ticks.count(after_ms, until_ms, 10**6) == len(expected)
