"""The tables of the guide about schedules are true."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import pytest

from tenure.core.schedule.cron import parse
from tenure.core.schedule.ticks import between, of_cron
from tests.core.schedule.model import zone_of

PAGE: Final = (Path(__file__).parents[3] / "docs/guide/schedules.md").read_text("utf-8")
BERLIN: Final = "Europe/Berlin"


def fires_on(rule: str, zone: ZoneInfo, *, month: int, day: int) -> list[str]:
    """Return the local times at which a rule fires on a day of 2026, with their offsets."""
    begin, end = (datetime(2026, month, day + later, tzinfo=zone).timestamp() for later in (0, 1))
    found = between(of_cron(rule, BERLIN), int(begin) * 1_000 - 1, int(end) * 1_000 - 1, 100)
    return [datetime.fromtimestamp(tick / 1_000, zone).strftime("%H:%M%z") for tick in found]


@pytest.mark.parametrize(
    ("rule", "spring", "autumn"),
    [
        ("30 2 * * *", ["03:00+0200"], ["02:30+0200"]),
        ("*/20 2 * * *", ["03:00+0200"], ["02:00+0200", "02:20+0200", "02:40+0200"]),
        ("30 2,3 * * *", ["03:00+0200", "03:30+0200"], ["02:30+0200", "03:30+0100"]),
        ("0 2,3 * * *", ["03:00+0200"], ["02:00+0200", "03:00+0100"]),
    ],
)
def test_a_rule_fires_when_the_guide_says(rule: str, spring: list[str], autumn: list[str]) -> None:
    zone = zone_of(BERLIN)
    assert f"| `{rule}` |" in PAGE
    assert fires_on(rule, zone, month=3, day=29) == spring
    assert fires_on(rule, zone, month=10, day=25) == autumn


@pytest.mark.parametrize(
    ("rule", "spring", "autumn"),
    [
        ("0 */2 * * *", 12, 12),
        ("30 0-23 * * *", 24, 24),
        ("30 * * * *", 23, 25),
        ("0 0 * * *", 1, 1),
    ],
)
def test_a_rule_fires_as_often_as_the_guide_says(rule: str, spring: int, autumn: int) -> None:
    zone = zone_of(BERLIN)
    assert f"| `{rule}` |" in PAGE
    assert len(fires_on(rule, zone, month=3, day=29)) == spring
    assert len(fires_on(rule, zone, month=10, day=25)) == autumn


@pytest.mark.parametrize(
    ("short", "rule"),
    [
        ("@yearly", "0 0 0 1 1 *"),
        ("@annually", "0 0 0 1 1 *"),
        ("@monthly", "0 0 0 1 * *"),
        ("@weekly", "0 0 0 * * 0"),
        ("@daily", "0 0 0 * * *"),
        ("@midnight", "0 0 0 * * *"),
        ("@hourly", "0 0 * * * *"),
    ],
)
def test_a_short_form_is_the_rule_that_the_guide_says(short: str, rule: str) -> None:
    assert f"`{short}`" in PAGE
    assert f"`{rule}` |" in PAGE
    assert parse(short) == parse(rule)
