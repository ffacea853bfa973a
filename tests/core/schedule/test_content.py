"""What the content of a schedule may be, which ticks it has, and its next one."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenure.core.filter import ScheduleFilter
from tenure.core.schedule import check
from tenure.core.schedule.origin import fire_key, skip_key, trigger_key
from tenure.core.schedule.record import Rule, ScheduleSpec, ScheduleState
from tenure.core.schedule.timing import next_tick_ms, range_of, ticks_of
from tenure.core.task.record import Spec, TaskKind
from tenure.errors import InvalidArgument, TenureError
from tests.core.schedule.schedules import NOW, SECOND, schedule, spec

HOURLY = Rule(cron="0 * * * *")


@pytest.mark.parametrize(
    "content",
    [
        spec(),
        spec(HOURLY),
        spec(Rule(cron="0 * * * *", zone="Europe/Berlin")),
        spec(is_run=True, external_id="sync"),
        spec(catchup_window_ms=1, starts_at_ms=NOW, ends_at_ms=NOW),
        spec(ends_at_ms=NOW),
    ],
)
def test_a_valid_content_is_accepted(content: ScheduleSpec) -> None:
    check.check_spec(content)


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (spec(Rule()), "rule"),
        (spec(Rule(cron="* * * * *", every_ms=1_000)), "rule"),
        (spec(Rule(cron="* * * * *", offset_ms=1)), "offset"),
        (spec(Rule(every_ms=1_000, zone="Europe/Berlin")), "zone"),
        (spec(Rule(every_ms=999)), "every"),
        (spec(Rule(cron="61 * * * *")), "rule"),
        (spec(max_catchup=1_001), "maxCatchup"),
        (spec(catchup_window_ms=0), "catchupWindowMs"),
        (spec(jitter_ms=-1), "jitterMs"),
        (spec(starts_at_ms=-1), "startsAt"),
        (spec(starts_at_ms=NOW, ends_at_ms=NOW - 1), "endsAt"),
        (spec(pause_after_failures=-1), "pauseAfterFailures"),
        (spec(note="x" * 2_000), "note"),
        (spec(external_id="sync"), "externalId"),
        (spec(is_run=True, external_id="a\nb"), "externalId"),
    ],
)
def test_an_invalid_content_names_its_field(content: ScheduleSpec, field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check.check_spec(content)
    assert caught.value.fields["field"] == field


@pytest.mark.parametrize(
    "changes", [{"queue": "a b"}, {"spec": Spec()}, {"input": "text"}, {"labels": {"a b": "c"}}]
)
def test_the_target_is_checked_as_an_enqueue(changes: dict[str, Any]) -> None:
    content = spec()
    with pytest.raises(TenureError):
        check.check_spec(replace(content, target=replace(content.target, **changes)))


def test_a_run_is_checked_as_a_start() -> None:
    bad = Spec(kind=TaskKind.WORKFLOW, start_to_close_ms=5)
    content = spec(is_run=True)
    with pytest.raises(InvalidArgument) as caught:
        check.check_spec(replace(content, target=replace(content.target, spec=bad)))
    assert caught.value.fields["field"] == "startToCloseMs"


def test_a_schedule_needs_a_tick_in_the_future() -> None:
    check.check_future(spec(), NOW)
    with pytest.raises(InvalidArgument):
        check.check_future(spec(ends_at_ms=NOW), NOW)


def test_ticks_are_between_start_and_end() -> None:
    ticks = ticks_of(spec(starts_at_ms=NOW + 2 * SECOND, ends_at_ms=NOW + 4 * SECOND))
    assert ticks.after(NOW) == NOW + 2 * SECOND
    assert ticks.after(NOW + 4 * SECOND) is None
    assert ticks.until(NOW + 9 * SECOND) == NOW + 4 * SECOND
    assert ticks.until(NOW + SECOND) is None
    found = range_of(ticks, after_ms=NOW, until_ms=NOW + 9 * SECOND)
    assert found is not None
    assert found.count == 3
    open_start = ticks_of(spec(ends_at_ms=NOW))
    assert open_start.until(NOW + SECOND) == NOW
    assert ticks_of(spec(starts_at_ms=NOW)).after(0) == NOW


def test_a_range_is_counted_up_to_a_limit() -> None:
    ticks = ticks_of(spec())
    small = range_of(ticks, after_ms=NOW, until_ms=NOW + 3 * SECOND)
    assert small is not None
    assert (small.first_ms, small.last_ms, small.count, small.is_exact) == (
        NOW + SECOND,
        NOW + 3 * SECOND,
        3,
        True,
    )
    large = range_of(ticks, after_ms=NOW, until_ms=NOW + 20_000 * SECOND)
    assert large is not None
    assert (large.count, large.is_exact) == (10_000, False)
    assert range_of(ticks, after_ms=NOW, until_ms=NOW) is None
    ended = ticks_of(spec(ends_at_ms=NOW))
    assert range_of(ended, after_ms=NOW, until_ms=NOW + SECOND) is None
    future = ticks_of(spec(starts_at_ms=NOW + 5 * SECOND))
    assert range_of(future, after_ms=NOW, until_ms=NOW + SECOND) is None


def test_the_next_tick_is_that_of_an_active_schedule() -> None:
    assert next_tick_ms(schedule(), NOW) == NOW + SECOND
    assert next_tick_ms(schedule(fired_until_ms=NOW + SECOND), NOW) == NOW + 2 * SECOND
    assert next_tick_ms(schedule(state=ScheduleState.PAUSED), NOW) is None
    assert next_tick_ms(schedule(spec(Rule(cron="bad"))), NOW) is None


def test_keys_of_ticks_triggers_and_ranges_are_never_equal() -> None:
    keys = {fire_key("a", NOW), trigger_key("a", "b"), skip_key("a", "b"), fire_key("a:b", NOW)}
    assert len(keys) == 4
    assert fire_key("a", NOW) < fire_key("a", NOW + 1) < fire_key("a", NOW + SECOND)


def test_a_task_without_a_schedule_has_no_fire() -> None:
    assert (Spec().schedule_id, Spec().fire_at_ms) == ("", 0)


def test_a_filter_names_its_invalid_field() -> None:
    assert ScheduleFilter(type="mail").checked() == ScheduleFilter(type="mail")
    with pytest.raises(InvalidArgument):
        ScheduleFilter(type="a b").checked()


def test_a_schedule_is_known_by_its_namespace_and_id() -> None:
    assert schedule().key == ("acme/default", "nightly")
