"""Every event meets every state of a schedule."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from tenure.core.limits import SCHEDULE_ERROR_BYTES_MAX
from tenure.core.schedule import decide as rules
from tenure.core.schedule.event import (
    BreakFound,
    Looked,
    NamespaceEnabled,
    PauseRequested,
    Replaced,
    ResumeRequested,
    ScheduleEvent,
    TasksEnded,
)
from tenure.core.schedule.look import ScheduleDecision
from tenure.core.schedule.record import (
    FireOutcome,
    Overlap,
    ResumeMode,
    Rule,
    Schedule,
    ScheduleSpec,
    ScheduleState,
)
from tenure.core.schedule.rule import RULES
from tenure.errors import Rejection
from tests.core.schedule.schedules import NOW, SECOND, new_id, schedule, skips, some_schedule, spec

BAD = Rule(cron="* * * * *", zone="Atlantis/Gone")
EVENTS: list[ScheduleEvent] = [
    Looked(new_id=new_id, room=5),
    PauseRequested("month end"),
    ResumeRequested(new_id=new_id),
    ResumeRequested(new_id=new_id, mode=ResumeMode.SKIP),
    Replaced(new_id=new_id, spec=spec()),
    Replaced(new_id=new_id, spec=spec(Rule(cron="0 * * * *"))),
    TasksEnded((FireOutcome.FAILED,)),
    TasksEnded((FireOutcome.FAILED, FireOutcome.SUCCEEDED, FireOutcome.CANCELLED)),
    BreakFound("bad row"),
    NamespaceEnabled(),
]


def decided(given: Schedule, event: ScheduleEvent, at_ms: int = 0) -> ScheduleDecision:
    decision = rules.decide(given, event, NOW + at_ms)
    assert isinstance(decision, ScheduleDecision)
    return decision


def resume(given: Schedule, mode: ResumeMode, at_ms: int) -> ScheduleDecision:
    return decided(given, ResumeRequested(new_id=new_id, mode=mode), at_ms)


@pytest.mark.parametrize("event", EVENTS)
def test_every_event_on_every_schedule_is_decided(event: ScheduleEvent) -> None:
    chance = random.Random(7)
    for _ in range(300):
        given = some_schedule(chance)
        decision = rules.decide(given, event, NOW + chance.randrange(100) * SECOND)
        rule = RULES[type(event)]
        if given.state in rule.sources:
            assert isinstance(decision, ScheduleDecision)
            assert decision.schedule.state in rule.targets
            assert decision.schedule.progress.fired_until_ms >= given.progress.fired_until_ms
        else:
            assert isinstance(decision, Rejection)
            assert (decision.code, decision.fields["state"]) == ("wrong_state", given.state.upper())


def test_a_new_schedule_counts_from_now() -> None:
    made = rules.create(spec(), namespace="acme/default", schedule_id="a", now_ms=NOW + 10)
    assert made.progress.fired_until_ms == NOW + 10
    assert made.due_at_ms == NOW + SECOND


def test_a_pause_that_is_repeated_changes_only_its_note() -> None:
    paused = decided(schedule(), PauseRequested("a"), 10).schedule
    assert decided(paused, PauseRequested("a"), 20).schedule is paused
    other = decided(paused, PauseRequested("b"), 20).schedule
    assert (other.progress.pause_note, other.progress.paused_at_ms) == ("b", NOW + 10)


def test_a_paused_schedule_forgets_that_it_was_broken() -> None:
    paused = decided(schedule(state=ScheduleState.BROKEN), PauseRequested()).schedule
    assert (paused.state, paused.progress.error) == (ScheduleState.PAUSED, "")


def test_a_resumed_schedule_looks_at_what_it_has_missed() -> None:
    paused = schedule(state=ScheduleState.PAUSED, failure_count=4, chosen_until_ms=NOW)
    resumed = resume(paused, ResumeMode.CATCH_UP, 5 * SECOND)
    assert resumed.fires == ()
    assert resumed.schedule.due_at_ms == NOW + 5 * SECOND
    assert resumed.schedule.progress.failure_count == 0
    early = resume(paused, ResumeMode.CATCH_UP, 10)
    assert early.schedule.due_at_ms == NOW + SECOND


def test_a_resume_may_skip_what_was_missed() -> None:
    content = spec(overlap=Overlap.BUFFER_ONE)
    paused = schedule(content, state=ScheduleState.PAUSED, buffered_at_ms=NOW, last_task_id="t")
    resumed = resume(paused, ResumeMode.SKIP, 5 * SECOND)
    assert skips(resumed) == [("paused", 0, 0, 1), ("paused", 1, 5, 5)]
    assert resumed.schedule.progress.buffered_at_ms == 0
    assert resumed.schedule.due_at_ms == NOW + 6 * SECOND
    nothing = resume(schedule(state=ScheduleState.PAUSED), ResumeMode.SKIP, 10)
    assert nothing.fires == ()


def test_an_active_schedule_is_not_resumed() -> None:
    given = schedule()
    assert resume(given, ResumeMode.SKIP, 5 * SECOND).schedule is given


def test_a_broken_schedule_is_tried_again_by_a_resume() -> None:
    given = schedule(state=ScheduleState.BROKEN)
    assert resume(given, ResumeMode.CATCH_UP, 0).schedule.state is ScheduleState.ACTIVE
    still = schedule(spec(BAD), state=ScheduleState.BROKEN)
    assert resume(still, ResumeMode.CATCH_UP, 0).schedule.state is ScheduleState.BROKEN


def put(given: Schedule, content: ScheduleSpec, at_ms: int) -> ScheduleDecision:
    return decided(given, Replaced(new_id=new_id, spec=content), at_ms)


def test_another_rule_counts_from_now() -> None:
    hourly = spec(Rule(cron="0 * * * *"))
    decision = put(schedule(), hourly, 5 * SECOND)
    assert skips(decision) == [("replaced", 1, 5, 5)]
    assert decision.schedule.progress.fired_until_ms == NOW + 5 * SECOND
    assert decision.schedule.due_at_ms == NOW + 3_600_000
    ahead = schedule(fired_until_ms=NOW + 9 * SECOND)
    assert put(ahead, hourly, 5 * SECOND).schedule.progress.fired_until_ms == NOW + 9 * SECOND


def test_a_rule_that_could_not_be_evaluated_has_no_ticks_to_skip() -> None:
    decision = put(schedule(spec(BAD), state=ScheduleState.BROKEN), spec(), 5 * SECOND)
    assert decision.fires == ()
    assert decision.schedule.state is ScheduleState.ACTIVE
    assert decision.schedule.progress.fired_until_ms == NOW + 5 * SECOND


def test_the_same_content_changes_nothing_unless_the_schedule_is_broken() -> None:
    given = schedule()
    assert put(given, spec(), SECOND).schedule is given
    repaired = put(schedule(state=ScheduleState.BROKEN), spec(), SECOND)
    assert repaired.schedule.state is ScheduleState.ACTIVE


def test_a_paused_schedule_stays_paused() -> None:
    assert put(schedule(state=ScheduleState.PAUSED), spec(max_catchup=3), SECOND).schedule.is_paused


def ended(given: Schedule, *outcomes: FireOutcome, at_ms: int = 0) -> Schedule:
    return decided(given, TasksEnded(outcomes), at_ms).schedule


def test_failures_in_a_row_are_counted() -> None:
    failed, done = FireOutcome.FAILED, FireOutcome.SUCCEEDED
    assert ended(schedule(), failed, failed).progress.failure_count == 2
    assert ended(schedule(failure_count=2), FireOutcome.CANCELLED).progress.failure_count == 2
    assert ended(schedule(failure_count=2), failed, done).progress.failure_count == 0
    assert ended(schedule(state=ScheduleState.PAUSED), failed).progress.failure_count == 1


def test_too_many_failures_pause_a_schedule() -> None:
    given = schedule(spec(pause_after_failures=2))
    assert ended(given, FireOutcome.FAILED).state is ScheduleState.ACTIVE
    paused = ended(given, FireOutcome.FAILED, FireOutcome.FAILED)
    assert paused.is_paused
    assert paused.progress.pause_note == "Paused after 2 failures in a row."


def test_the_end_of_a_task_makes_a_waiting_schedule_due() -> None:
    content = spec(Rule(cron="0 * * * *"), overlap=Overlap.BUFFER_ONE)
    waiting = schedule(content, buffered_at_ms=NOW, last_task_id="t", due_at_ms=NOW + 3 * SECOND)
    assert ended(waiting, FireOutcome.SUCCEEDED, at_ms=SECOND).due_at_ms == NOW + SECOND
    late = replace(waiting, due_at_ms=NOW)
    assert ended(late, FireOutcome.SUCCEEDED, at_ms=SECOND).due_at_ms == NOW
    assert ended(schedule(), FireOutcome.SUCCEEDED).due_at_ms == NOW + SECOND


def test_an_error_is_cut_and_never_empty() -> None:
    broken = decided(schedule(), BreakFound("é" * 2_000)).schedule
    assert len(broken.progress.error.encode()) <= SCHEDULE_ERROR_BYTES_MAX
    assert decided(schedule(), BreakFound("")).schedule.progress.error == "unknown"


def test_an_enabled_namespace_wakes_what_was_held() -> None:
    held = schedule(is_held=True, due_at_ms=NOW + 600 * SECOND)
    assert decided(held, NamespaceEnabled(), SECOND).schedule.due_at_ms == NOW + SECOND
    given = schedule()
    assert decided(given, NamespaceEnabled(), SECOND).schedule is given
