"""Steps by calls of their own: what the journal has of a key decides what each call does."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tenure.core.journal.entry import Entry, EntryBody, EntryKind, encode_body
from tenure.core.run import step_call
from tenure.core.run.step_call import STEP_RETRY, StepPlan, StepRecord, Wake, record_of
from tenure.core.task.retry import ErrorCategory, ErrorInfo, RetryPolicy
from tenure.errors import Rejection

KEY: Final = "charge"
NOW: Final = 1_750_000_000_000
FAULT: Final = ErrorInfo(ErrorCategory.USER_CODE, "boom", type="ValueError")
OTHER_FAULT: Final = ErrorInfo(ErrorCategory.USER_CODE, "bang", type="ValueError")
FATAL: Final = ErrorInfo(ErrorCategory.DATA_QUALITY, "bad row")
SLOW: Final = RetryPolicy(initial_interval_ms=60_000)


def entry(
    kind: EntryKind, *, pos: int = 1, attempt: int = 1, at_ms: int = NOW, **body: Any
) -> Entry:
    stored = encode_body(EntryBody(**body), at_ms)
    return Entry("j", pos, at_ms, attempt, 1 if attempt else 0, kind, KEY, stored, 0)


def record(*entries: Entry) -> StepRecord:
    return record_of(KEY, entries)


def begun(pos: int = 1, **fields: Any) -> Entry:
    return entry(EntryKind.BEGUN, pos=pos, **{"attempts": 1, "started_at_ms": NOW - 300, **fields})


def failed(pos: int = 2, next_in_ms: int = 200, **fields: Any) -> Entry:
    given = {"attempts": 1, "error": FAULT, "next_at_ms": NOW + next_in_ms, **fields}
    return entry(EntryKind.RETRY, pos=pos, **given)


def done(pos: int = 3, **fields: Any) -> Entry:
    return entry(EntryKind.STEP, pos=pos, **{"output": b"12", "attempts": 1, **fields})


def fallen_asleep(fire_in_ms: int = 1_000, **fields: Any) -> Entry:
    given = {"started_at_ms": NOW, "fire_at_ms": NOW + fire_in_ms, **fields}
    return entry(EntryKind.BEGUN, **given)


def begin(known: StepRecord, attempt: int = 1, now_ms: int = NOW, **fields: Any) -> StepPlan:
    given = {"content": None, "encoding": "json", **fields}
    return planned(step_call.begin(known, attempt=attempt, now_ms=now_ms, **given))


def complete(known: StepRecord, output: bytes | None = b"12", encoding: str = "json") -> StepPlan:
    return planned(step_call.complete(known, now_ms=NOW, output=output, encoding=encoding))


def fail(known: StepRecord, error: ErrorInfo = FAULT, **fields: Any) -> StepPlan:
    given = {"attempt": 1, "now_ms": NOW, "policy": STEP_RETRY, "jitter": 0.5, **fields}
    return planned(step_call.fail(known, error=error, **given))


def sleep(known: StepRecord, duration_ms: int = 1_000, now_ms: int = NOW) -> StepPlan:
    return planned(step_call.sleep(known, now_ms=now_ms, duration_ms=duration_ms))


def planned(answer: StepPlan | Rejection) -> StepPlan:
    assert isinstance(answer, StepPlan), answer
    return answer


class TestBegin:
    def test_a_step_that_nobody_knows_begins_with_its_first_attempt(self) -> None:
        plan = begin(record(), content=b"[1]")
        assert plan.number == 1
        assert plan.entry is not None
        assert (plan.entry.kind, plan.entry.key) == (EntryKind.BEGUN, KEY)
        body = EntryBody(output=b"[1]", attempts=1, started_at_ms=NOW)
        assert plan.entry.body == body
        assert (plan.wake, plan.recorded) == (None, None)

    def test_an_input_has_its_encoding_and_none_has_none(self) -> None:
        packed = begin(record(), content=b"\x01", encoding="msgpack").entry
        empty = begin(record(), content=None, encoding="msgpack").entry
        assert packed is not None
        assert empty is not None
        assert (packed.body.encoding, empty.body.encoding) == ("msgpack", "json")

    def test_the_same_attempt_of_the_run_begins_a_step_once(self) -> None:
        assert begin(record(begun())) == StepPlan(number=1)
        assert begin(record(failed(1), begun(2, attempts=2))) == StepPlan(number=2)

    def test_a_later_attempt_of_the_run_begins_it_again_with_the_same_number(self) -> None:
        plan = begin(record(begun()), attempt=2)
        assert plan.entry is not None
        assert plan.number == plan.entry.body.attempts == 1

    def test_a_failed_step_begins_its_next_attempt(self) -> None:
        plan = begin(record(begun(), failed()))
        assert plan.entry is not None
        assert plan.number == plan.entry.body.attempts == 2

    def test_a_step_that_has_ended_is_told_as_it_was_recorded(self) -> None:
        assert begin(record(begun(), done())) == StepPlan(recorded=done().content)
        plan = begin(record(begun(), done(output=None, error=FATAL)))
        assert plan.recorded is not None
        assert (plan.recorded.output, plan.recorded.error) == (None, FATAL)

    def test_a_step_whose_next_attempt_is_far_away_goes_on_waiting(self) -> None:
        known = record(begun(), failed(next_in_ms=60_000))
        wake = Wake("retry", NOW + 60_000, "retry@charge")
        assert begin(known, 2, NOW + 59_999) == StepPlan(wake=wake, next_at_ms=NOW + 60_000)
        assert begin(known, 2, NOW + 60_000).number == 2

    def test_a_short_wait_is_left_to_the_worker(self) -> None:
        assert begin(record(begun(), failed(next_in_ms=5_000))).number == 2


class TestComplete:
    def test_an_output_is_recorded_with_the_attempt_and_its_times(self) -> None:
        plan = complete(record(failed(1), begun(2, attempts=2)))
        assert plan.entry is not None
        assert plan.entry.kind is EntryKind.STEP
        body = EntryBody(output=b"12", attempts=2, started_at_ms=NOW - 300, took_ms=300)
        assert plan.entry.body == body

    def test_a_step_that_has_not_begun_may_end_too(self) -> None:
        plan = complete(record(), encoding="msgpack")
        assert plan.entry is not None
        assert plan.entry.body == EntryBody(output=b"12", encoding="msgpack", attempts=1)

    def test_what_has_begun_before_the_last_failure_tells_no_times(self) -> None:
        plan = complete(record(begun(), failed()))
        assert plan.entry is not None
        assert (plan.entry.body.started_at_ms, plan.entry.body.attempts) == (0, 2)

    def test_a_step_without_an_output_has_no_encoding(self) -> None:
        plan = complete(record(), None, "msgpack")
        assert plan.entry is not None
        assert plan.entry.body == EntryBody(attempts=1)

    @pytest.mark.parametrize(
        ("known", "output", "encoding"),
        [
            (done(), b"12", "json"),
            (done(encoding="msgpack"), b"12", "msgpack"),
            (done(output=None), None, "msgpack"),
        ],
    )
    def test_the_same_output_again_is_no_news(
        self, known: Entry, output: bytes | None, encoding: str
    ) -> None:
        assert complete(record(known), output, encoding) == StepPlan()

    @pytest.mark.parametrize(
        ("known", "output", "encoding"),
        [
            (done(), b"13", "json"),
            (done(), None, "json"),
            (done(), b"12", "msgpack"),
            (done(output=None, error=FAULT), None, "json"),
        ],
    )
    def test_another_output_is_refused(
        self, known: Entry, output: bytes | None, encoding: str
    ) -> None:
        answer = step_call.complete(record(known), now_ms=NOW, output=output, encoding=encoding)
        assert isinstance(answer, Rejection)
        assert (answer.code, answer.fields) == ("already_exists", {"field": "stepId"})


class TestFail:
    def test_a_failure_is_recorded_with_the_time_of_the_next_attempt(self) -> None:
        plan = fail(record(begun()))
        assert plan.entry is not None
        assert plan.entry.kind is EntryKind.RETRY
        assert plan.entry.body == EntryBody(
            error=FAULT, attempts=1, started_at_ms=NOW - 300, took_ms=300, next_at_ms=NOW + 200
        )
        assert (plan.next_at_ms, plan.wake) == (NOW + 200, None)

    def test_a_long_wait_is_left_to_the_server(self) -> None:
        plan = fail(record(begun()), policy=SLOW)
        assert plan.wake == Wake("retry", NOW + 60_000, "retry@charge")
        assert plan.next_at_ms == NOW + 60_000
        # At the limit the worker waits.
        in_slot = fail(record(begun()), policy=RetryPolicy(initial_interval_ms=5_000))
        assert in_slot.wake is None

    def test_the_last_failure_is_recorded_as_the_end_of_the_step(self) -> None:
        plan = fail(record(failed(1, attempts=2), begun(2)))
        assert plan.entry is not None
        assert plan.entry.kind is EntryKind.STEP
        assert (plan.entry.body.error, plan.entry.body.attempts) == (FAULT, 3)
        assert plan.next_at_ms == 0

    def test_a_failure_that_is_not_retried_ends_the_step_at_once(self) -> None:
        plan = fail(record(begun()), FATAL, policy=SLOW)
        assert plan.entry is not None
        assert (plan.entry.kind, plan.entry.body.error) == (EntryKind.STEP, FATAL)

    def test_the_same_failure_again_gets_the_same_answer(self) -> None:
        assert fail(record(begun(), failed())) == StepPlan(next_at_ms=NOW + 200)
        known = record(begun(), failed(next_in_ms=60_000))
        wake = Wake("retry", NOW + 60_000, "retry@charge")
        assert fail(known) == StepPlan(wake=wake, next_at_ms=NOW + 60_000)
        ended = record(begun(), done(output=None, error=FAULT))
        assert fail(ended) == StepPlan()

    def test_another_failure_is_that_of_the_next_attempt(self) -> None:
        for plan in (
            fail(record(begun(), failed()), OTHER_FAULT),
            # It has begun once more, or another attempt of the run reports it.
            fail(record(failed(1), begun(2, attempts=2))),
            fail(record(begun(), failed()), attempt=2),
        ):
            assert plan.entry is not None
            assert (plan.entry.kind, plan.entry.body.attempts) == (EntryKind.RETRY, 2)
            assert plan.next_at_ms == NOW + 400

    @pytest.mark.parametrize("known", [done(), done(output=None, error=OTHER_FAULT)])
    def test_a_failure_of_a_step_that_has_ended_otherwise_is_refused(self, known: Entry) -> None:
        answer = step_call.fail(
            record(known), attempt=1, now_ms=NOW, error=FAULT, policy=STEP_RETRY, jitter=0.5
        )
        assert isinstance(answer, Rejection)
        assert answer.code == "already_exists"


class TestSleep:
    def test_no_time_at_all_is_over_at_once(self) -> None:
        plan = sleep(record(), 0)
        assert plan.entry is not None
        assert (plan.entry.kind, plan.entry.body) == (EntryKind.TIMER, EntryBody(fire_at_ms=NOW))
        assert (plan.wake, plan.next_at_ms) == (None, NOW)

    def test_a_sleep_is_recorded_with_its_end_and_yields(self) -> None:
        plan = sleep(record(), 1)
        assert plan.entry is not None
        assert plan.entry.kind is EntryKind.BEGUN
        assert plan.entry.body == EntryBody(started_at_ms=NOW, fire_at_ms=NOW + 1)
        assert (plan.wake, plan.next_at_ms) == (Wake("timer", NOW + 1, KEY), NOW + 1)

    def test_the_end_stands_whatever_is_asked_for_later(self) -> None:
        wake = Wake("timer", NOW + 1_000, KEY)
        plan = sleep(record(fallen_asleep()), 99_000, NOW + 600)
        assert plan == StepPlan(wake=wake, next_at_ms=NOW + 1_000)

    def test_a_sleep_whose_end_has_come_is_over(self) -> None:
        plan = sleep(record(fallen_asleep()), now_ms=NOW + 1_000)
        assert plan.entry is not None
        assert plan.entry.body == EntryBody(fire_at_ms=NOW + 1_000)
        fired = entry(EntryKind.TIMER, pos=2, attempt=0, fire_at_ms=NOW + 1_000)
        assert sleep(record(fallen_asleep(), fired)) == StepPlan(next_at_ms=NOW + 1_000)


STEPS: Final = (record(begun()), record(failed()), record(done()))
SLEEPS: Final = (record(fallen_asleep()), record(entry(EntryKind.TIMER, attempt=0, fire_at_ms=NOW)))
OTHERS: Final = tuple(
    record(entry(kind)) for kind in (EntryKind.CHILD, EntryKind.GROUP, EntryKind.PATCH)
)


class TestKeys:
    @pytest.mark.parametrize("known", [*SLEEPS, *OTHERS])
    def test_the_key_of_something_else_is_no_step(self, known: StepRecord) -> None:
        what = "a sleep" if known in SLEEPS else "another call"
        for answer in (
            step_call.begin(known, attempt=1, now_ms=NOW, content=None, encoding="json"),
            step_call.complete(known, now_ms=NOW, output=None, encoding="json"),
            step_call.fail(
                known, attempt=1, now_ms=NOW, error=FAULT, policy=STEP_RETRY, jitter=0.5
            ),
        ):
            assert isinstance(answer, Rejection)
            assert (answer.code, answer.fields) == ("already_exists", {"field": "stepId"})
            assert what in answer.message

    @pytest.mark.parametrize("known", [*STEPS, *OTHERS])
    def test_the_key_of_something_else_is_no_sleep(self, known: StepRecord) -> None:
        answer = step_call.sleep(known, now_ms=NOW, duration_ms=1)
        assert isinstance(answer, Rejection)
        assert answer.code == "already_exists"
        assert ("a step" if known in STEPS else "another call") in answer.message


@pytest.mark.parametrize(
    ("end", "handed", "foreign", "seen"),
    [(0, 0, None, 0), (5, 2, None, 5), (5, 2, 3, 2), (6, 2, 5, 4), (2, 4, None, 4)],
)
def test_a_holder_has_seen_what_it_was_handed_and_what_it_has_added(
    end: int, handed: int, foreign: int | None, seen: int
) -> None:
    assert step_call.seen_by_holder(end=end, handed=handed, foreign=foreign) == seen
