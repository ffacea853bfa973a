"""Zones by name, and the times between two changes of their clocks."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime

import pytest

from tenure.core import limits
from tenure.core.schedule.zone import Zone, find_zone
from tenure.errors import InvalidArgument
from tests.core.schedule import zone_file
from tests.core.schedule.zone_file import Change

END_S = limits.TICKS_END_MS // 1_000
LOOKED_AT = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Santiago",
    "Africa/Casablanca",
    "Africa/Monrovia",
    "Asia/Gaza",
    "Asia/Kolkata",
    "Pacific/Apia",
)


def changes_of(zone: Zone) -> list[Change]:
    """Return all changes by following the spans, which have to meet."""
    found: list[Change] = []
    at_s = 0
    while at_s < END_S:
        span = zone.span(at_s)
        assert span.start_s == at_s
        assert zone.span(span.end_s - 1) == span
        if span.offset_s != span.before_s:
            found.append(Change(at_s, span.offset_s))
        at_s = span.end_s
    return found


@pytest.mark.parametrize("name", LOOKED_AT)
def test_a_clock_changes_when_its_file_says_so(name: str) -> None:
    listed = zone_file.listed_changes(zone_file.content(name))
    assert changes_of(find_zone(name))[: len(listed)] == listed


def test_no_zone_changes_twice_within_three_days() -> None:
    for name in zone_file.names():
        instants = [change.at_s for change in zone_file.listed_changes(zone_file.content(name))]
        between = [later - earlier for earlier, later in itertools.pairwise(instants)]
        assert min(between, default=END_S) > 3 * 86_400, name


def test_a_zone_changes_by_its_rule_until_2099() -> None:
    found = changes_of(find_zone("Europe/Berlin"))
    shown = [(datetime.fromtimestamp(at_s, UTC).isoformat(), offset) for at_s, offset in found[-2:]]
    assert shown == [("2099-03-29T01:00:00+00:00", 7_200), ("2099-10-25T01:00:00+00:00", 3_600)]


def test_every_zone_of_the_package_can_be_used() -> None:
    for name in zone_file.names():
        assert abs(find_zone(name).offset_s(1_800_000_000)) <= 14 * 3_600


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Mars/Olympus",
        "europe/berlin",
        "Europe",
        "Europe/",
        "Europe/Berlin/",
        "/etc/passwd",
        "../../etc/passwd",
        "Europe/../UTC",
        "./UTC",
        "UTC\0",
        "\ud800",
        "UTC ",
        " UTC",
        "UTC\nEurope/Berlin",
        "CET-1CEST",
        "__init__.py",
        "zone.tab",
        "tzdata.zi",
        "posix/UTC",
        "right/UTC",
        "+01:00",
        "x" * 65,
        "Europe/Berlin" * 100_000,
    ],
)
def test_a_name_that_is_not_in_the_list_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match=r"^zone ") as caught:
        find_zone(name)
    assert caught.value.fields == {"field": "zone"}
