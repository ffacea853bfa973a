"""How a run gives up its slot, and what wakes it again."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core.journal.entry import EntryBody, EntryKind, NewEntry
from tenure.core.limits import PARK_MAX_MS, PARK_MIN_MS
from tenure.core.run.record import NOT_BEGUN, TIMED_WAITS, RunProgress, Yield
from tenure.core.task import attempt_end, deadline
from tenure.core.task.attempt import Outcome
from tenure.core.task.effect import Decision, TellRun
from tenure.core.task.event import AttemptParked, AttemptYielded, EntryAppended
from tenure.core.task.record import Task, TaskState

_DOUBLINGS_MAX = 16


def run_of(task: Task) -> RunProgress:
    """Return where a run stands."""
    return task.progress.run or NOT_BEGUN


def with_run(task: Task, run: RunProgress) -> Task:
    """Return the task with where its run stands now."""
    return replace(task, progress=replace(task.progress, run=run))


def is_parked(task: Task) -> bool:
    """Tell whether a run waits because its code does not fit its journal."""
    return task.state is TaskState.WAITING and run_of(task).park is not None


def give_up_slot(task: Task, event: AttemptYielded, now_ms: int) -> Decision:
    """Let a run wait that has seen its whole journal; else it is pending again at once.

    There may be one yield per sleep of a run, so none leaves a record of its attempt.
    """
    wish = event.wish
    run = replace(
        run_of(task),
        seen=wish.seen,
        wake_at_ms=wish.wake_at_ms,
        wake_key=wish.wake_key,
        wake_index=wish.wake_index,
        patience_n=max(1, wish.patience_n),
        patience_ms=wish.patience_ms,
        news_at_ms=0,
        home_worker_id=task.worker_id,
        park=None,
        park_count=0,
        waits=wish.waits,
        wait_count=wish.wait_count,
    )
    # It made progress: what interrupted it before does not count any more.
    yielding = with_run(replace(task, progress=replace(task.progress, interruption_count=0)), run)
    if event.journal_end > wish.seen or task.progress.pause_wanted:
        return replace(attempt_end.give_back(yielding, Outcome.YIELDED, now_ms, now_ms), ended=None)
    return Decision(_waiting(yielding, Outcome.SLEPT if _is_asleep(wish) else Outcome.YIELDED))


def _is_asleep(wish: Yield) -> bool:
    """Tell whether only a timer wakes a run; what is not shown of its waits may be a signal."""
    if not wish.wake_at_ms or wish.wait_count > len(wish.waits):
        return False
    return all(each.kind in TIMED_WAITS for each in wish.waits)


def park(task: Task, event: AttemptParked, now_ms: int) -> Decision:
    """Put a run aside whose code does not fit its journal; it is tried again later, by itself."""
    if task.is_cancel_requested:
        failed = replace(task, progress=replace(task.progress, error=event.error))
        return attempt_end.finish(failed, TaskState.CANCELLED, now_ms, Outcome.PARKED)
    run = run_of(task)
    wait_ms = min(PARK_MIN_MS << min(run.park_count, _DOUBLINGS_MAX), PARK_MAX_MS)
    parked = replace(
        run,
        wake_at_ms=now_ms + wait_ms,
        wake_key="",
        news_at_ms=0,
        home_worker_id=None,
        park=event.error,
        park_count=run.park_count + 1,
        waits=(),
        wait_count=0,
    )
    parking = with_run(task, parked)
    if task.progress.pause_wanted:
        return attempt_end.give_back(parking, Outcome.PARKED, now_ms, now_ms, event.error)
    waiting = _waiting(parking, Outcome.PARKED)
    ended = attempt_end.record(task, waiting, Outcome.PARKED, event.error, now_ms)
    return Decision(waiting, ended=ended)


def _waiting(task: Task, outcome: Outcome) -> Task:
    ended = attempt_end.end_attempt(task, outcome)
    return deadline.armed(replace(ended, state=TaskState.WAITING, worker_id=None))


def entry_appended(task: Task, event: EntryAppended, now_ms: int) -> Decision:
    """Wake a run that waits, at once or when it has no more patience.

    Whoever holds a run is told. If that gets lost, it finds out itself: it asks, or yields with the
    position that it has seen.
    """
    if task.worker_id is not None:
        return Decision(task, effects=(tell(task, task.worker_id),))
    run = run_of(task)
    if task.state is not TaskState.WAITING or run.park is not None:
        return Decision(task)
    if event.is_urgent or event.pos - run.seen >= run.patience_n:
        return attempt_end.ready(task, now_ms)
    if run.news_at_ms:
        return Decision(task)
    return Decision(
        deadline.armed(with_run(task, replace(run, news_at_ms=now_ms + run.patience_ms)))
    )


def tell(task: Task, worker_id: str) -> TellRun:
    """Return what tells the holder of a run that its journal has more."""
    return TellRun(worker_id, task.namespace, task.id, task.attempt)


def wake(task: Task, now_ms: int) -> Decision:
    """Wake a run whose timer has fired; what it slept for is recorded with it.

    It stands in the line by when its timer was due, however late that was noticed.
    """
    run = run_of(task)
    woken = attempt_end.ready(task, _due_at_ms(task, run, now_ms), now_ms=now_ms)
    if run.park is not None or not 0 < run.wake_at_ms <= now_ms:
        return woken
    body = EntryBody(fire_at_ms=run.wake_at_ms, index=run.wake_index)
    return replace(woken, entries=(NewEntry(EntryKind.TIMER, run.wake_key, body),))


def _due_at_ms(task: Task, run: RunProgress, now_ms: int) -> int:
    """Return since when a woken run could go on."""
    if task.spec.schedule_to_start_ms:
        # An outage of the servers must not use up the time that workers have to take it.
        return now_ms
    return min(at_ms for at_ms in (run.wake_at_ms, run.news_at_ms, now_ms) if at_ms)
