"""The next fires, as they are shown."""

from __future__ import annotations

import pytest

from tenure.core.limits import TICKS_END_MS
from tenure.core.schedule.preview import local_text, next_fires
from tenure.core.schedule.ticks import of_cron, of_interval
from tenure.core.schedule.zone import find_zone
from tenure.errors import InvalidArgument


def test_a_fire_is_shown_in_utc_and_with_its_local_offset() -> None:
    ticks = of_cron("30 2 * * *", "Europe/Berlin")
    found = next_fires(ticks, find_zone("Europe/Berlin"), 1_774_650_000_000, TICKS_END_MS, 3)
    assert [(fire.utc, fire.local) for fire in found] == [
        ("2026-03-28T01:30:00.000Z", "2026-03-28T02:30:00.000+01:00"),
        ("2026-03-29T01:00:00.000Z", "2026-03-29T03:00:00.000+02:00"),
        ("2026-03-30T00:30:00.000Z", "2026-03-30T02:30:00.000+02:00"),
    ]
    assert found[0].fire_at_ms == 1_774_661_400_000


def test_no_fire_is_shown_behind_the_end() -> None:
    found = next_fires(of_interval(1_500), find_zone("UTC"), 0, 4_000, 100)
    assert [fire.utc for fire in found] == ["1970-01-01T00:00:01.500Z", "1970-01-01T00:00:03.000Z"]


@pytest.mark.parametrize(
    ("zone", "at_ms", "text"),
    [
        ("UTC", 0, "1970-01-01T00:00:00.000+00:00"),
        ("America/St_Johns", 1_800_000_000_001, "2027-01-15T04:30:00.001-03:30"),
        ("Asia/Kathmandu", 1_800_000_000_000, "2027-01-15T13:45:00.000+05:45"),
        # 44 minutes and 30 seconds behind UTC, until 1972.
        ("Africa/Monrovia", 3_600_000, "1970-01-01T00:15:00.000-00:45"),
    ],
)
def test_a_local_time_has_its_offset(zone: str, at_ms: int, text: str) -> None:
    assert local_text(find_zone(zone), at_ms) == text


@pytest.mark.parametrize("count", [0, 101, True])
def test_a_preview_has_1_to_100_fires(count: int) -> None:
    with pytest.raises(InvalidArgument, match=r"^count must be") as caught:
        next_fires(of_interval(1_000), find_zone("UTC"), 0, TICKS_END_MS, count)
    assert caught.value.fields == {"field": "count"}
