"""What a schedule will fire, and the notes about it."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tenure.core.schedule.plan import plan, plan_of
from tenure.core.schedule.record import (
    Progress,
    Rule,
    Schedule,
    ScheduleSpec,
    ScheduleState,
    Target,
)
from tenure.core.task.record import Spec
from tenure.errors import InvalidArgument

NOW_MS: Final = 1_767_225_600_000  # 2026-01-01T00:00:00Z
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
NIGHTLY: Final = Rule(cron="0 2 * * *")
HOURLY: Final = Rule(every_ms=HOUR_MS)
BERLIN: Final = "Europe/Berlin"


def fires(rule: Rule, **changes: Any) -> list[int]:
    """Return the planned instants as hours from now."""
    given: dict[str, Any] = {
        "starts_at_ms": None,
        "ends_at_ms": None,
        "after_ms": NOW_MS,
        "count": 3,
    }
    found = plan(rule, **{**given, **changes})
    return [(each.fire_at_ms - NOW_MS) // HOUR_MS for each in found.fires]


def schedule(rule: Rule = HOURLY, **changes: Any) -> Schedule:
    target = Target(type="report", queue="default", spec=Spec(start_to_close_ms=1))
    bounds = {key: changes.pop(key) for key in ("starts_at_ms", "ends_at_ms") if key in changes}
    spec = ScheduleSpec(rule=rule, target=target, **bounds)
    given = {"namespace": "a/b", "id": "s", "spec": spec, "due_at_ms": NOW_MS}
    return Schedule(**{**given, **changes})


def test_the_next_fires_of_a_rule_and_of_an_interval() -> None:
    assert fires(NIGHTLY) == [2, 26, 50]
    assert fires(HOURLY, count=2) == [1, 2]
    assert fires(Rule(cron="0 2 * * *", zone=BERLIN), count=1) == [1]


def test_a_start_and_an_end_bound_the_fires() -> None:
    assert fires(HOURLY, starts_at_ms=NOW_MS + 5 * HOUR_MS) == [5, 6, 7]
    assert fires(HOURLY, starts_at_ms=NOW_MS - HOUR_MS) == [1, 2, 3]
    assert fires(HOURLY, ends_at_ms=NOW_MS + 2 * HOUR_MS) == [1, 2]
    assert fires(HOURLY, ends_at_ms=NOW_MS) == []


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        (Rule(), "rule"),
        (Rule(cron="0 2 * * *", every_ms=HOUR_MS), "rule"),
        (Rule(cron="0 25 * * *"), "rule"),
        (Rule(every_ms=1), "every"),
        (Rule(cron="0 2 * * *", zone="Nowhere"), "zone"),
    ],
)
def test_a_rule_that_is_wrong_is_named_by_its_field(rule: Rule, field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        fires(rule)
    assert caught.value.fields == {"field": field}


@pytest.mark.parametrize("count", [0, 101])
def test_a_count_that_is_out_of_bounds_is_refused(count: int) -> None:
    with pytest.raises(InvalidArgument) as caught:
        fires(HOURLY, count=count)
    assert caught.value.fields == {"field": "count"}
    with pytest.raises(InvalidArgument):
        plan_of(schedule(), now_ms=NOW_MS, count=count)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (HOURLY, []),
        (NIGHTLY, []),
        (Rule(cron="0 2 13 * *"), []),
        (Rule(cron="0 2 * * 1"), ["Sunday"]),
        (Rule(cron="0 2 13 * 1"), ["either", "Sunday"]),
        (Rule(cron="0 2 * * *", zone=BERLIN), ["fires once"]),
        (Rule(cron="30 * * * *", zone=BERLIN), ["twice"]),
    ],
)
def test_notes_say_how_a_rule_is_read(rule: Rule, words: list[str]) -> None:
    found = plan(rule, starts_at_ms=None, ends_at_ms=None, after_ms=NOW_MS, count=1)
    assert len(found.notes) == len(words)
    for note, word in zip(found.notes, words, strict=True):
        assert word in note


def test_a_stored_schedule_fires_after_now_and_after_its_mark() -> None:
    found = plan_of(schedule(), now_ms=NOW_MS, count=2)
    assert [each.fire_at_ms for each in found.fires] == [NOW_MS + HOUR_MS, NOW_MS + 2 * HOUR_MS]
    ahead = schedule(progress=Progress(fired_until_ms=NOW_MS + HOUR_MS))
    found = plan_of(ahead, now_ms=NOW_MS, count=1)
    assert [each.fire_at_ms for each in found.fires] == [NOW_MS + 2 * HOUR_MS]
    ending = schedule(ends_at_ms=NOW_MS + HOUR_MS)
    assert len(plan_of(ending, now_ms=NOW_MS, count=5).fires) == 1


def test_a_note_says_that_a_schedule_is_paused() -> None:
    paused = schedule(state=ScheduleState.PAUSED, due_at_ms=None)
    found = plan_of(paused, now_ms=NOW_MS, count=1)
    assert len(found.fires) == 1
    assert "is paused" in found.notes[0]


def test_a_broken_schedule_has_its_error_in_place_of_fires() -> None:
    broken = schedule(
        Rule(cron="0 2 * * *", zone="Gone/Away"),
        state=ScheduleState.BROKEN,
        due_at_ms=None,
        progress=Progress(error="no such zone"),
    )
    found = plan_of(broken, now_ms=NOW_MS, count=1)
    assert found.fires == []
    assert "broken and fires nothing: no such zone" in found.notes[0]
    assert "zone" in found.notes[1]
