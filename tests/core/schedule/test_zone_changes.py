"""Rules around each change of a clock, compared with a walk over UTC."""

from __future__ import annotations

import pytest

from tests.core.schedule.around_change import CHANGES, complaints, instants
from tests.core.schedule.model import walk, walk_minutes


def test_every_change_of_these_years_is_looked_at() -> None:
    for name, least in CHANGES.items():
        assert len(instants(name)) >= least, name


@pytest.mark.parametrize("name", CHANGES)
def test_ticks_around_a_change_are_those_of_a_walk_over_minutes(name: str) -> None:
    for change_s in instants(name):
        assert complaints(name, change_s, 4 * 3_600, walk_minutes) == []


@pytest.mark.parametrize("name", CHANGES)
def test_ticks_at_a_change_are_those_of_a_walk_over_seconds(name: str) -> None:
    for change_s in instants(name)[:2]:
        assert complaints(name, change_s, 1_200, walk) == []
