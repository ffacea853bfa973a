"""Steps of a run by calls of their own: what a call records, what it answers, when the run goes on.

A worker without our loop asks for each step by its key. What the journal has of that key decides:
the last entry of each kind. An attempt that has to wait for long yields, and a timer of the server
wakes the run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from tenure.core.journal.entry import JSON, Entry, EntryBody, EntryKind, NewEntry
from tenure.core.limits import STEP_WAIT_HERE_MS
from tenure.core.task import retry
from tenure.core.task.retry import ErrorInfo, RetryPolicy
from tenure.errors import Rejection

STEP_RETRY: Final = RetryPolicy(initial_interval_ms=200, maximum_attempts=3)
"""How a failed step is tried again if its worker does not say."""


class StepRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a journal has of one key: its end, its last failure and beginning, its timer, others."""

    key: str
    end: Entry | None = None
    retry: Entry | None = None
    begun: Entry | None = None
    timer: Entry | None = None
    other: Entry | None = None

    @property
    def failure_count(self) -> int:
        """Return how many attempts of the step have failed and were tried again."""
        return 0 if self.retry is None else self.retry.content.attempts

    @property
    def beginning(self) -> Entry | None:
        """Return where the present attempt of the step has begun, if that was recorded."""
        if self.begun is None or (self.retry is not None and self.retry.pos > self.begun.pos):
            return None
        return self.begun

    @property
    def is_sleep(self) -> bool:
        """Tell whether the key is that of a sleep."""
        return self.timer is not None or (self.begun is not None and _fires_at_ms(self.begun) > 0)

    @property
    def is_step(self) -> bool:
        """Tell whether the key is that of a step."""
        has_begun = self.begun is not None and not self.is_sleep
        return self.end is not None or self.retry is not None or has_begun


class Wake(msgspec.Struct, frozen=True, gc=False):
    """What an attempt yields for: the time, and the key of the timer."""

    kind: str
    at_ms: int
    key: str


class StepPlan(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a call does: an entry that is recorded, then a wait for which the attempt yields.

    The rest is its answer: the number of the step's attempt, what was ``recorded`` of a step that
    has ended, and when the next attempt begins or the sleep ends.
    """

    entry: NewEntry | None = None
    wake: Wake | None = None
    number: int = 0
    recorded: EntryBody | None = None
    next_at_ms: int = 0


def record_of(key: str, entries: Iterable[Entry]) -> StepRecord:
    """Return what the last entries of each kind say of a key."""
    found = {_PLACES.get(entry.kind, "other"): entry for entry in entries}
    return StepRecord(key=key, **found)


_PLACES: Final = {
    EntryKind.STEP: "end",
    EntryKind.RETRY: "retry",
    EntryKind.BEGUN: "begun",
    EntryKind.TIMER: "timer",
}


def begin(
    record: StepRecord, *, attempt: int, now_ms: int, content: bytes | None, encoding: str
) -> StepPlan | Rejection:
    """Let a step begin that has not ended; one that waits for its next attempt goes on waiting."""
    if record.is_sleep or record.other is not None:
        return _taken(record)
    if record.end is not None:
        return StepPlan(recorded=record.end.content)
    wake = _put_off(record, now_ms)
    if wake is not None:
        return StepPlan(wake=wake, next_at_ms=wake.at_ms)
    number = record.failure_count + 1
    beginning = record.beginning
    if beginning is not None and beginning.attempt == attempt:
        return StepPlan(number=number)
    body = EntryBody(
        output=content,
        encoding=JSON if content is None else encoding,
        attempts=number,
        started_at_ms=now_ms,
    )
    return StepPlan(entry=NewEntry(EntryKind.BEGUN, record.key, body), number=number)


def complete(
    record: StepRecord, *, now_ms: int, output: bytes | None, encoding: str
) -> StepPlan | Rejection:
    """Record the output of a step; the same one again is no news."""
    if record.is_sleep or record.other is not None:
        return _taken(record)
    if record.end is None:
        return _ended(record, EntryBody(output=output, encoding=encoding), now_ms)
    known = record.end.content
    is_same = known.error is None and known.output == output
    if is_same and (output is None or known.encoding == encoding):
        return StepPlan()
    return _other_end(record)


def fail(
    record: StepRecord,
    *,
    attempt: int,
    now_ms: int,
    error: ErrorInfo,
    policy: RetryPolicy,
    jitter: float,
) -> StepPlan | Rejection:
    """Let a failed step be tried again, or record that it has failed for good.

    The same failure again, before the step began another time, is a report that was repeated.
    """
    if record.is_sleep or record.other is not None:
        return _taken(record)
    if record.end is not None:
        return StepPlan() if record.end.content.error == error else _other_end(record)
    known = record.retry
    if known is not None and record.beginning is None and known.attempt == attempt:
        body = known.content
        if body.error == error:
            return StepPlan(wake=_put_off(record, now_ms), next_at_ms=body.next_at_ms)
    number = record.failure_count + 1
    delay_ms = retry.next_delay_ms(policy, failure_count=number, error=error, jitter=jitter)
    if delay_ms is None:
        return _ended(record, EntryBody(error=error), now_ms)
    next_at_ms = now_ms + delay_ms
    started_at_ms, took_ms = _times(record, now_ms)
    body = EntryBody(
        error=error,
        attempts=number,
        started_at_ms=started_at_ms,
        took_ms=took_ms,
        next_at_ms=next_at_ms,
    )
    wake = _retry_wake(record, next_at_ms) if delay_ms > STEP_WAIT_HERE_MS else None
    entry = NewEntry(EntryKind.RETRY, record.key, body)
    return StepPlan(entry=entry, wake=wake, next_at_ms=next_at_ms)


def sleep(record: StepRecord, *, now_ms: int, duration_ms: int) -> StepPlan | Rejection:
    """Let a run sleep; its end stands when it is first asked for, whatever wakes the run before."""
    if record.is_step or record.other is not None:
        return _taken(record)
    if record.timer is not None:
        return StepPlan(next_at_ms=_fires_at_ms(record.timer))
    begun, entry = record.begun, None
    fire_at_ms = now_ms + duration_ms if begun is None else _fires_at_ms(begun)
    if fire_at_ms <= now_ms:
        fired = NewEntry(EntryKind.TIMER, record.key, EntryBody(fire_at_ms=fire_at_ms))
        return StepPlan(entry=fired, next_at_ms=fire_at_ms)
    if begun is None:
        body = EntryBody(started_at_ms=now_ms, fire_at_ms=fire_at_ms)
        entry = NewEntry(EntryKind.BEGUN, record.key, body)
    wake = Wake("timer", fire_at_ms, record.key)
    return StepPlan(entry=entry, wake=wake, next_at_ms=fire_at_ms)


def seen_by_holder(*, end: int, handed: int, foreign: int | None) -> int:
    """Return up to where the holder of a run knows its journal, without being asked.

    That is what it was handed, and what it has recorded behind that, up to the ``foreign`` entry of
    somebody else.
    """
    return max(handed, end if foreign is None else foreign - 1)


def _ended(record: StepRecord, body: EntryBody, now_ms: int) -> StepPlan:
    started_at_ms, took_ms = _times(record, now_ms)
    ended = msgspec.structs.replace(
        body,
        attempts=record.failure_count + 1,
        started_at_ms=started_at_ms,
        took_ms=took_ms,
        encoding=body.encoding if body.output is not None else JSON,
    )
    return StepPlan(entry=NewEntry(EntryKind.STEP, record.key, ended))


def _times(record: StepRecord, now_ms: int) -> tuple[int, int]:
    """Return when the present attempt of a step has begun, and how long it took."""
    beginning = record.beginning
    started_at_ms = 0 if beginning is None else beginning.content.started_at_ms
    return started_at_ms, max(0, now_ms - started_at_ms) if started_at_ms else 0


def _put_off(record: StepRecord, now_ms: int) -> Wake | None:
    """Return what a step waits for whose next attempt is too far away for its worker."""
    if record.retry is None or record.beginning is not None:
        return None
    next_at_ms = record.retry.content.next_at_ms
    is_long = next_at_ms - record.retry.at_ms > STEP_WAIT_HERE_MS
    return _retry_wake(record, next_at_ms) if is_long and next_at_ms > now_ms else None


def _retry_wake(record: StepRecord, at_ms: int) -> Wake:
    return Wake("retry", at_ms, f"retry@{record.key}")


def _fires_at_ms(entry: Entry) -> int:
    return entry.content.fire_at_ms


def _taken(record: StepRecord) -> Rejection:
    what = "a sleep" if record.is_sleep else "a step" if record.is_step else "another call"
    message = f"{record.key!r} is the id of {what} of this run. Use another id."
    return Rejection("already_exists", message, {"field": "stepId"})


def _other_end(record: StepRecord) -> Rejection:
    message = (
        f"Step {record.key!r} has ended with something else. What was recorded stays: BeginStep "
        "returns it."
    )
    return Rejection("already_exists", message, {"field": "stepId"})
