"""Random lives of a task: what holds after any sequence of events. The seed reproduces a life."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, get_args

import pytest

from tenure.core.journal.entry import EntryKind, NewEntry
from tenure.core.limits import INTERRUPTIONS_MAX, POISON_LOSSES_MAX
from tenure.core.run import start as run_start
from tenure.core.run.record import Yield
from tenure.core.task import deadline
from tenure.core.task.attempt import UNRECORDED
from tenure.core.task.callback import CallbackTimes
from tenure.core.task.decide import decide
from tenure.core.task.effect import Decision
from tenure.core.task.enqueue import create
from tenure.core.task.event import (
    AttemptContinued,
    AttemptDeferred,
    AttemptFailed,
    AttemptParked,
    AttemptReport,
    AttemptYielded,
    CancelRequested,
    CancelSignalled,
    Confirmed,
    DamageFound,
    DeliveryMissed,
    DeliveryRefused,
    Due,
    EntryAppended,
    HandedOut,
    Heartbeaten,
    PauseRequested,
    ResumeRequested,
    StepsRecorded,
    TaskEvent,
    TaskLost,
    Terminated,
    WorkerLost,
)
from tenure.core.task.record import TERMINAL, UNHELD, Line, NewTask, Task, TaskKind, TaskState
from tenure.core.task.retry import RetryPolicy
from tenure.core.task.rule import RULES
from tests.core.task.tasks import FATAL, FAULT, NAMESPACE, OTHER, SIGHTED, T0, WORKER, new

SIGNAL: Final = NewEntry(EntryKind.SIGNAL, "approve")
CANCEL: Final = NewEntry(EntryKind.CANCEL, "cancel")
SEEDS: Final = 25
LIVES_PER_SEED: Final = 120
EVENTS_PER_LIFE: Final = 60
WORKERS: Final = [WORKER, OTHER]
EVENT_TYPES: Final[tuple[type[TaskEvent], ...]] = get_args(TaskEvent)

# What mostly happens in a state, so that lives get long; anything else may happen as well.
USUAL: Final[dict[TaskState, list[type[TaskEvent]]]] = {
    TaskState.PENDING: [HandedOut, HandedOut, HandedOut, Due],
    TaskState.DISPATCHED: [Confirmed, Confirmed, Heartbeaten, DeliveryMissed, WorkerLost, Due],
    TaskState.RUNNING: [
        Heartbeaten,
        AttemptFailed,
        AttemptYielded,
        AttemptParked,
        AttemptContinued,
        StepsRecorded,
        AttemptDeferred,
        TaskLost,
        WorkerLost,
        Due,
    ],
    TaskState.CANCELLING: [Heartbeaten, CancelSignalled, AttemptDeferred, AttemptYielded],
    TaskState.WAITING: [EntryAppended, Heartbeaten, AttemptFailed, Due],
    TaskState.PAUSED: [ResumeRequested],
}


def request(rng: random.Random) -> NewTask:
    """Return a task some of whose timeouts are set, in every order of their lengths."""
    kind = rng.choice(list(TaskKind))
    return new(
        kind=kind,
        run_at_ms=rng.choice([0, T0 + 400]),
        schedule_to_start_ms=rng.choice([0, 0, 900, 20_000]),
        schedule_to_close_ms=rng.choice([0, 0, 9_000, 90_000]),
        start_to_close_ms=rng.choice([600, 3_000, 60_000]) if kind is TaskKind.ACTIVITY else 0,
        heartbeat_timeout_ms=rng.choice([0, 300, 900, 2_500]) if kind is TaskKind.ACTIVITY else 0,
        cancel_grace_ms=rng.choice([200, 5_000]),
        delivery_timeout_ms=rng.choice([250, 2_000]),
        retry=RetryPolicy(initial_interval_ms=100, maximum_attempts=rng.choice([0, 0, 5])),
    )


class Life:
    """One task, a clock that never goes back, and everything that can be said to it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now_ms = T0
        self.task = self.born(request(rng))
        self.journal_end = 0
        self.journals = 1
        self.is_armed_exactly = True
        self.check_alive(self.task)

    def born(self, new: NewTask) -> Task:
        if new.spec.kind is TaskKind.ACTIVITY:
            return create(new, namespace=NAMESPACE, now_ms=T0)
        return run_start.create(new, namespace=NAMESPACE, now_ms=T0, journal_id="journal 1")

    def run(self) -> None:
        for _ in range(EVENTS_PER_LIFE):
            if self.task.state in TERMINAL and self.rng.random() < 0.3:
                return
            self.let_time_pass()
            is_usual = self.task.state in USUAL and self.rng.random() < 0.8
            kinds = USUAL[self.task.state] if is_usual else EVENT_TYPES
            self.meet(self.make(self.rng.choice(kinds)))

    def let_time_pass(self) -> None:
        if self.task.due_at_ms is not None and self.rng.random() < 0.1:
            self.now_ms = max(self.now_ms, self.task.due_at_ms)
            self.meet(self.make(Due))
        else:
            self.now_ms += self.rng.choice([0, 0, 1, 50, 50, 300, 1_000])

    def make(self, kind: type[TaskEvent]) -> TaskEvent:
        rng, task = self.rng, self.task
        others: dict[type[TaskEvent], Callable[[], TaskEvent]] = {
            HandedOut: lambda: HandedOut(
                worker_id=rng.choice(WORKERS), times=rng.choice([None, None, CallbackTimes()])
            ),
            WorkerLost: lambda: WorkerLost(worker_id=rng.choice([task.worker_id or OTHER, OTHER])),
            CancelRequested: CancelRequested,
            PauseRequested: PauseRequested,
            ResumeRequested: ResumeRequested,
            Terminated: Terminated,
            DamageFound: lambda: DamageFound(message="input"),
            EntryAppended: self.make_news,
            Due: lambda: Due(sighted_ms=rng.choice([0, 100, 400, SIGHTED]), jitter=rng.random()),
        }
        return others[kind]() if kind in others else self.make_report(kind)

    def make_news(self) -> EntryAppended:
        """Return what is appended by others, of which a run must hear in time."""
        self.journal_end += 1
        return EntryAppended(pos=self.journal_end, is_urgent=self.rng.random() < 0.3)

    def make_report(self, kind: Callable[..., TaskEvent]) -> TaskEvent:
        """Return a report: mostly a right one, else late, early or from somebody else."""
        rng, task = self.rng, self.task
        fields: dict[str, object] = {
            "attempt": task.attempt - rng.choice([0] * 8 + [1, -1]),
            "worker_id": rng.choice([task.worker_id, task.worker_id, None, rng.choice(WORKERS)]),
            "needs_confirmed": rng.random() < 0.1,
        }
        if kind is Heartbeaten:
            fields["details"] = rng.choice([None, b"1", b"2"])
        elif kind is AttemptFailed:
            fields |= {"error": rng.choice([FAULT] * 9 + [FATAL]), "jitter": rng.random()}
            self.journals += 1
            fields["new_journal_id"] = f"journal {self.journals}"
        elif kind is AttemptParked:
            fields["error"] = FATAL
        elif kind is DeliveryRefused:
            fields["error"] = rng.choice([FAULT, FATAL])
        elif kind is AttemptContinued:
            self.journals += 1
            fields |= {"new_journal_id": f"journal {self.journals}", "input": b"2"}
            fields["encoding"] = rng.choice(["", "other"])
            fields["kept"] = rng.choice([(), (SIGNAL,), (SIGNAL, CANCEL)])
        elif kind is AttemptYielded:
            fields["journal_end"] = self.journal_end
            fields["wish"] = Yield(
                seen=max(0, self.journal_end - rng.choice([0, 0, 1])),
                wake_at_ms=rng.choice([0, self.now_ms + 700]),
                patience_n=rng.choice([0, 1, 3]),
                patience_ms=rng.choice([0, 90]),
            )
        return kind(**fields)

    def meet(self, event: TaskEvent) -> None:
        """Decide an event and check everything that holds after it."""
        before = self.task
        decision = decide(before, event, self.now_ms)
        assert decision == decide(before, event, self.now_ms)
        if not isinstance(decision, Decision):
            return
        self.check_fence(before, event)
        self.check_budgets(before, event, decision)
        self.check_record(before, decision)
        self.check_timer(before, event, decision.task)
        self.check_alive(decision.task)
        self.check_run(before, decision)
        self.task = decision.task

    def check_fence(self, before: Task, event: TaskEvent) -> None:
        assert before.state not in TERMINAL
        assert before.state in RULES[type(event)].sources
        if isinstance(event, AttemptReport):
            assert before.is_attempt_live
            assert event.attempt == before.attempt
            assert event.worker_id in {None, before.worker_id}
        of_runs = AttemptYielded | AttemptParked | AttemptContinued | StepsRecorded | EntryAppended
        assert not isinstance(event, of_runs) or before.kind is TaskKind.WORKFLOW
        assert not isinstance(event, AttemptDeferred) or before.kind is TaskKind.ACTIVITY

    def check_budgets(self, before: Task, event: TaskEvent, decision: Decision) -> None:
        after, old, progress = decision.task, before.progress, decision.task.progress
        assert after.attempt == before.attempt + isinstance(event, HandedOut)
        assert 0 <= progress.failure_count - old.failure_count <= 1
        is_reset = (
            isinstance(event, AttemptYielded | AttemptContinued) and not progress.interruption_count
        )
        assert is_reset or 0 <= progress.interruption_count - old.interruption_count <= 1
        is_live = after.state not in TERMINAL
        assert not is_live or progress.interruption_count < INTERRUPTIONS_MAX
        assert not is_live or progress.loss_count < POISON_LOSSES_MAX
        is_done_with = isinstance(event, AttemptContinued) and CANCEL not in event.kept
        assert old.cancel_at_ms in {0, progress.cancel_at_ms} or is_done_with
        sent = event.details if isinstance(event, Heartbeaten) else None
        assert progress.details == (sent or old.details)

    def check_record(self, before: Task, decision: Decision) -> None:
        """Check that an attempt that ended without its task left a record, and no other did."""
        after = decision.task
        is_over = before.is_attempt_live and not after.is_attempt_live
        is_silent = after.last_outcome in UNRECORDED
        is_kept = is_over and after.state not in TERMINAL and not is_silent
        assert (decision.ended is not None) == is_kept
        if decision.ended is not None:
            assert decision.ended.number == before.attempt
            assert decision.ended.outcome is after.last_outcome
            assert decision.ended.worker_id == before.worker_id

    def check_run(self, before: Task, decision: Decision) -> None:
        """Check that a waiting run hears of its journal, and that only runs have one."""
        task, run = decision.task, decision.task.progress.run
        assert (run is None) == (task.kind is TaskKind.ACTIVITY) == (task.link is None)
        if run is None:
            assert not decision.entries
            return
        assert task.link is not None
        is_anew = task.link != (before.link or task.link)
        if is_anew:
            self.journal_end = 0
        self.journal_end += len(decision.entries)
        old = before.progress.run
        assert old is not None
        assert run.generation == old.generation + is_anew
        if task.state is TaskState.WAITING and run.park is None:
            assert self.journal_end - run.seen < run.patience_n
            assert self.journal_end == run.seen or run.news_at_ms

    def check_timer(self, before: Task, event: TaskEvent, after: Task) -> None:
        if after.state in TERMINAL:
            assert after.due_at_ms is None
            return
        plain_ms = deadline.next_due_ms(after)
        if isinstance(event, Due):
            self.check_progress_of_timer(before, event, after)
            self.is_armed_exactly = after.due_at_ms == plain_ms
        elif after.state is not before.state:
            self.is_armed_exactly = True
        elif isinstance(event, Heartbeaten):
            # A heartbeat leaves the timer where it is: the early look arms it again.
            self.is_armed_exactly = self.is_armed_exactly and after.due_at_ms == plain_ms
            assert (after.due_at_ms is None) == (plain_ms is None)
        if self.is_armed_exactly:
            assert after.due_at_ms == plain_ms

    def check_progress_of_timer(self, before: Task, event: Due, after: Task) -> None:
        """Check that no timer fires twice for the same reason."""
        is_changed = (after.state, after.line) != (before.state, before.line)
        assert is_changed or after.due_at_ms is None or after.due_at_ms > self.now_ms
        if not is_changed:
            sighted = deadline.next_due_ms(after, now_ms=self.now_ms, sighted_ms=event.sighted_ms)
            assert after.due_at_ms == sighted

    def check_alive(self, task: Task) -> None:
        """Check who holds the task and that something will happen to it."""
        match task.state:
            case TaskState.PENDING:
                assert task.line is not Line.NONE or task.due_at_ms is not None
            case TaskState.DISPATCHED:
                assert task.worker_id in WORKERS
                assert task.due_at_ms is not None
            case TaskState.RUNNING:
                assert task.worker_id in WORKERS
            case TaskState.CANCELLING:
                assert task.worker_id is not None or task.due_at_ms is not None
                assert task.is_cancel_requested
            case TaskState.WAITING if task.progress.is_async:
                assert task.kind is TaskKind.ACTIVITY
                assert task.due_at_ms is not None
            case _:
                pass
        if task.state in UNHELD:
            assert task.worker_id is None
        assert (task.output is None) or task.state is TaskState.SUCCEEDED
        assert (task.progress.reason is not None) == (task.state is TaskState.FAILED)
        assert not task.progress.output_encoding or task.state is TaskState.SUCCEEDED


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_invariants_hold_in_every_life(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(LIVES_PER_SEED):
        Life(rng).run()
