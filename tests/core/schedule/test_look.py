"""What fires at a look, what is skipped, and when the next look is."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from tenure.core.limits import DISABLED_LOOK_MS, FIRE_PACE_MS, LATE_TICK_MS, OVERLAP_LOOK_MS
from tenure.core.run.external_id import OnLive
from tenure.core.schedule.record import FireKind, Overlap, Progress, Rule, ScheduleState
from tests.core.schedule.schedules import (
    NOW,
    SECOND,
    looked,
    new_id,
    schedule,
    skips,
    some_schedule,
    spec,
    ticks,
)

BUFFER = spec(overlap=Overlap.BUFFER_ONE)
CANCEL = spec(overlap=Overlap.CANCEL_PREVIOUS)
SKIP = spec(overlap=Overlap.SKIP)


def test_a_tick_fires_at_its_instant_and_the_next_look_is_at_the_next_tick() -> None:
    decision = looked(schedule(), SECOND)
    (fire,) = decision.fires
    assert decision.starts == (fire,)
    assert fire.key == "schedule:nightly:2026-01-01T00:00:01.000Z"
    assert (fire.kind, fire.lateness_ms) == (FireKind.TICK, 0)
    after = decision.schedule
    assert after.due_at_ms == NOW + 2 * SECOND
    assert after.progress.fired_until_ms == after.progress.last_fire_at_ms == NOW + SECOND
    assert after.progress.last_task_id == fire.task_id


def test_a_look_that_comes_early_changes_nothing_that_counts() -> None:
    decision = looked(schedule(), SECOND - 1)
    assert decision.fires == ()
    assert decision.schedule.due_at_ms == NOW + SECOND - 1 + FIRE_PACE_MS


def test_missed_ticks_fire_at_a_pace_and_stay_chosen() -> None:
    content = spec(max_catchup=15)
    first = looked(schedule(content), 40 * SECOND)
    assert ticks(first) == list(range(26, 36))
    assert skips(first) == [("catchup_limit", 1, 25, 25)]
    assert first.schedule.due_at_ms == NOW + 40 * SECOND + 10 * FIRE_PACE_MS
    second = looked(first.schedule, 41 * SECOND)
    assert ticks(second) == list(range(36, 41))
    assert skips(second) == []
    third = looked(second.schedule, 41 * SECOND + 250)
    assert ticks(third) == [41]


def test_what_was_chosen_long_ago_is_chosen_again() -> None:
    content = spec(max_catchup=15)
    first = looked(schedule(content), 40 * SECOND)
    later = looked(first.schedule, 40 * SECOND + LATE_TICK_MS + SECOND)
    assert skips(later) == [("catchup_limit", 36, 86, 51)]


def test_the_newest_tick_fires_without_catch_up_if_it_is_recent() -> None:
    hourly = spec(Rule(cron="0 * * * *"), max_catchup=0)
    recent = looked(schedule(hourly), 3_600_000 + LATE_TICK_MS)
    assert len(ticks(recent)) == 1
    late = looked(schedule(hourly), 3_600_000 + LATE_TICK_MS + 1)
    assert ticks(late) == []
    assert [each[0] for each in skips(late)] == ["catchup_limit"]
    assert late.schedule.progress.fired_until_ms == NOW + 3_600_000


def test_ticks_before_the_window_and_beyond_the_limit_are_two_ranges() -> None:
    content = spec(max_catchup=2, catchup_window_ms=5 * SECOND)
    decision = looked(schedule(content), 20 * SECOND)
    assert skips(decision) == [("catchup_window", 1, 14, 14), ("catchup_limit", 15, 18, 4)]
    assert ticks(decision) == [19, 20]


def test_a_recent_tick_fires_although_the_window_is_shorter() -> None:
    hourly = spec(Rule(cron="0 * * * *"), catchup_window_ms=1)
    decision = looked(schedule(hourly), 2 * 3_600_000 + 30 * SECOND)
    assert ticks(decision) == [7_200]
    assert [each[0] for each in skips(decision)] == ["catchup_window"]


def test_a_tick_that_waits_is_not_decided() -> None:
    assert Progress(fired_until_ms=9).decided_until_ms == 9
    assert Progress(fired_until_ms=9, buffered_at_ms=7).decided_until_ms == 6


def test_ticks_that_were_backfilled_do_not_fire_again() -> None:
    fired = frozenset({NOW + SECOND, NOW + 3 * SECOND})
    decision = looked(schedule(), 4 * SECOND, fired=fired)
    assert ticks(decision) == [2, 4]
    assert decision.schedule.progress.fired_until_ms == NOW + 4 * SECOND


def test_room_limits_what_fires() -> None:
    decision = looked(schedule(), 9 * SECOND, room=2)
    assert ticks(decision) == [1, 2]
    assert decision.schedule.progress.chosen_until_ms == NOW + 9 * SECOND


def test_a_disabled_namespace_holds_its_schedules() -> None:
    held = looked(schedule(), 5 * SECOND, is_disabled=True)
    assert held.fires == ()
    assert held.schedule.due_at_ms == NOW + 5 * SECOND + DISABLED_LOOK_MS
    content = replace(held.schedule, spec=spec(max_catchup=2, catchup_window_ms=4 * SECOND))
    free = looked(content, 10 * SECOND)
    assert {each[0] for each in skips(free)} == {"disabled"}
    assert ticks(free) == [9, 10]
    assert not free.schedule.progress.is_held


def test_a_tick_that_overlaps_is_skipped() -> None:
    busy = looked(schedule(SKIP, last_task_id="t"), 3 * SECOND, is_last_live=True)
    assert (ticks(busy), skips(busy)) == ([], [("overlap", 1, 3, 3)])
    free = looked(schedule(SKIP, last_task_id="t"), 3 * SECOND)
    assert (ticks(free), skips(free)) == ([1], [("overlap", 2, 3, 2)])


def test_the_newest_tick_waits_and_those_before_give_way() -> None:
    busy = looked(schedule(BUFFER, last_task_id="t"), 3 * SECOND, is_last_live=True)
    assert (ticks(busy), skips(busy)) == ([], [("overlap", 1, 2, 2)])
    waiting = busy.schedule
    assert waiting.progress.buffered_at_ms == NOW + 3 * SECOND
    still = looked(waiting, 4 * SECOND, is_last_live=True)
    assert skips(still) == [("overlap", 3, 3, 1)]
    assert still.cancel_id == ""
    free = looked(still.schedule, 4 * SECOND + 500)
    assert ticks(free) == [4]
    assert free.schedule.progress.buffered_at_ms == 0


def test_of_several_ticks_one_fires_and_the_newest_waits() -> None:
    free = looked(schedule(BUFFER), 3 * SECOND)
    assert (ticks(free), skips(free)) == ([1], [("overlap", 2, 2, 1)])
    assert free.schedule.progress.buffered_at_ms == NOW + 3 * SECOND


def test_a_waiting_tick_looks_at_the_last_task_again() -> None:
    hourly = spec(Rule(cron="0 * * * *"), overlap=Overlap.BUFFER_ONE)
    busy = looked(schedule(hourly, last_task_id="t"), 3_600_000, is_last_live=True)
    assert busy.schedule.due_at_ms == NOW + 3_600_000 + OVERLAP_LOOK_MS


def test_a_schedule_with_a_waiting_tick_has_not_ended() -> None:
    content = replace(BUFFER, ends_at_ms=NOW + SECOND)
    busy = looked(schedule(content, last_task_id="t"), SECOND, is_last_live=True)
    assert busy.schedule.due_at_ms == NOW + SECOND + OVERLAP_LOOK_MS
    free = looked(busy.schedule, 2 * SECOND)
    assert free.schedule.state is ScheduleState.ENDED


def test_the_last_task_is_cancelled_for_the_next_tick() -> None:
    busy = looked(schedule(CANCEL, last_task_id="t"), 3 * SECOND, is_last_live=True)
    assert busy.cancel_id == "t"
    assert skips(busy) == [("overlap", 1, 2, 2)]
    free = looked(busy.schedule, 4 * SECOND)
    # The newest, as it would have been with a scheduler that was never late.
    assert (ticks(free), skips(free)) == ([4], [("overlap", 3, 3, 1)])
    assert free.cancel_id == ""


def test_a_tick_that_waited_is_skipped_alone_because_others_may_be_skipped_already() -> None:
    mark_ms = NOW + 3 * SECOND
    waiting = schedule(
        BUFFER, last_task_id="t", buffered_at_ms=NOW + SECOND, fired_until_ms=mark_ms
    )
    busy = looked(waiting, 5 * SECOND, is_last_live=True)
    assert skips(busy) == [("overlap", 1, 1, 1), ("overlap", 4, 4, 1)]


def test_a_tick_that_waited_under_another_policy_fires() -> None:
    given = schedule(buffered_at_ms=NOW, last_task_id="t")
    assert ticks(looked(given, SECOND, is_last_live=True)) == [0, 1]


def test_a_live_run_with_the_external_id_is_the_run_of_the_tick() -> None:
    content = spec(is_run=True, external_id="sync")
    owner = new_id()
    decision = looked(schedule(content), 3 * SECOND, owner_id=owner)
    assert ticks(decision) == [1]
    assert decision.fires[0].task_id == owner
    assert decision.starts == ()


def test_a_tick_is_skipped_if_a_live_run_has_the_external_id() -> None:
    content = spec(is_run=True, external_id="sync", on_live=OnLive.REJECT)
    decision = looked(schedule(content), 3 * SECOND, owner_id=new_id())
    assert skips(decision) == [("external_id", 1, 1, 1)]
    cancelling = replace(content, overlap=Overlap.CANCEL_PREVIOUS)
    decision = looked(schedule(cancelling), 3 * SECOND, owner_id=new_id())
    assert skips(decision) == [("external_id", 1, 3, 3)]


def test_a_schedule_ends_with_its_last_tick() -> None:
    decision = looked(schedule(spec(ends_at_ms=NOW + SECOND)), SECOND)
    assert ticks(decision) == [1]
    assert (decision.schedule.state, decision.schedule.due_at_ms) == (ScheduleState.ENDED, None)


def test_a_rule_that_cannot_be_evaluated_breaks_its_schedule() -> None:
    decision = looked(schedule(spec(Rule(cron="* * * * *", zone="Atlantis/Gone"))), SECOND)
    assert decision.schedule.state is ScheduleState.BROKEN
    assert "zone" in decision.schedule.progress.error


@pytest.mark.parametrize("policy", Overlap)
def test_each_tick_fires_once_or_is_in_one_range(policy: Overlap) -> None:
    chance = random.Random(policy.value)
    for _ in range(200):
        content = spec(
            overlap=policy,
            max_catchup=chance.choice([0, 1, 5, 100]),
            catchup_window_ms=chance.choice([None, 3 * SECOND, 20 * SECOND]),
        )
        given, now = schedule(content), 0
        seen: list[int] = []
        for _ in range(30):
            step = chance.choice([-3, 0, 1, 2, 30, 90]) * SECOND + chance.randrange(900)
            now = max(0, now + step)
            decision = looked(
                given,
                now,
                room=chance.choice([1, 3, 10]),
                is_last_live=chance.random() < 0.4,
                is_disabled=chance.random() < 0.1,
            )
            for fire in decision.fires:
                first, last = (fire.fire_at_ms - NOW) // SECOND, (fire.until_ms - NOW) // SECOND
                assert last - first + 1 == fire.count
                seen += range(first, last + 1)
            given = decision.schedule
        waiting = given.progress.buffered_at_ms
        if waiting:
            seen.append((waiting - NOW) // SECOND)
        assert sorted(seen) == list(range(1, (given.progress.fired_until_ms - NOW) // SECOND + 1))


def test_any_schedule_can_be_looked_at() -> None:
    chance = random.Random(5)
    for _ in range(500):
        given = some_schedule(chance)
        if given.state is ScheduleState.ACTIVE:
            looked(given, chance.randrange(100) * SECOND, is_last_live=chance.random() < 0.5)
