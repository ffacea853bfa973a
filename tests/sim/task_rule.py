"""Invariants of tasks and attempts, checked on each change of their rows."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from tenure.core.task.attempt import CHARGES, Charge, Outcome
from tenure.core.task.record import TERMINAL, Line, Reason, Task, TaskKind, TaskState
from tenure.engine.command import TaskRef
from tenure.engine.task import command as c
from tests.sim.trace import Violation, short

if TYPE_CHECKING:
    from tests.sim.checker import Checker
    from tests.sim.server import Server
    from tests.sim.world import World

DRIFT: Final = 0.98
ROUNDING_MS: Final = 5
Key = tuple[str, str]
_REPORTED: Final = {
    Outcome.SUCCEEDED: c.FinishKind.SUCCEEDED,
    Outcome.FAILED: c.FinishKind.FAILED,
    Outcome.RELEASED: c.FinishKind.RELEASED,
    Outcome.PARKED: c.FinishKind.PARKED,
    Outcome.CONTINUED: c.FinishKind.CONTINUED,
}


class TaskRules:
    """What is known about tasks."""

    def __init__(self, world: World, checker: Checker) -> None:
        self._world = world
        self._checker = checker
        self._handed_at_ms: dict[Key, float] = {}
        self._heard_at_ms: dict[Key, float] = {}
        self._keys: dict[Key, str] = {}
        self.yielded: set[tuple[str, str, int]] = set()
        self.ended_counts: Counter[str] = Counter()

    def changed(self, old: Task | None, new: Task, server: Server) -> None:
        """Check one change of a task."""
        self._note(old, new)
        if old is None:
            self._born(new)
            old_attempt, is_live = 0, False
        else:
            if new.version != old.version + 1:
                self._fail("skipped a version", new)
            old_attempt, is_live = old.attempt, old.is_attempt_live
        if new.attempt not in (old_attempt, old_attempt + 1):
            self._fail(f"went from attempt {old_attempt} to {new.attempt}", new)
        is_handed = new.attempt == old_attempt + 1
        if old is not None:
            if is_live and (is_handed or not new.is_attempt_live):
                self._ended(old, new, server)
            elif is_live:
                self._went_on(old, new)
            else:
                self._waited(old, new, is_handed=is_handed)
        if is_handed:
            self._handed(old, new)
            self._world.served.handed(new, server)
        if new.finished_at_ms is None:
            self._check_future(new)
            self._check_cancel_kept(old, new)

    def _check_cancel_kept(self, old: Task | None, new: Task) -> None:
        """A cancel request stays, unless a run has seen it and begins anew."""
        is_asked = old is not None and old.is_cancel_requested and not new.is_cancel_requested
        if old is not None and is_asked and not self._checker.journals.is_continued(old, new):
            self._fail("forgot its cancel request", new)

    def _note(self, old: Task | None, new: Task) -> None:
        was = "new" if old is None else old.state.value
        holder = short(new.worker_id or "")
        self._world.note(
            f"task {short(new.id)}#{new.attempt} {was} -> {new.state} {holder}"
            f" {new.last_outcome or ''} {new.progress.reason or ''}"
        )

    def _fail(self, what: str, task: Task) -> None:
        message = f"task {short(task.id)}#{task.attempt} ({task.state}) {what}"
        raise Violation(message, task.id, task.worker_id or "")

    # -- Kinds of change -----------------------------------------------------------------------

    def _born(self, task: Task) -> None:
        key = (task.namespace, task.id)
        if key not in self._world.request_log.enqueued:
            self._fail("was never asked for", task)
        if key in self._checker.finished:
            self._fail("was finished and lives again", task)
        asked = self._world.request_log.enqueued[key]
        if asked is None:
            return
        wish = (asked.type, asked.queue, asked.priority, asked.input)
        if wish != (task.type, task.queue, task.priority, task.input):
            self._fail("is not what was asked for", task)
        if asked.idempotency_key:
            name = (task.namespace, asked.idempotency_key)
            if self._keys.setdefault(name, task.id) != task.id:
                self._fail(f"shares its key with {short(self._keys[name])}", task)

    def _handed(self, old: Task | None, new: Task) -> None:
        if new.state is not TaskState.DISPATCHED or new.worker_id is None:
            self._fail("has a new attempt that nobody holds", new)
            return
        key = (new.namespace, new.id)
        self._handed_at_ms[key] = self._world.now_ms
        self._world.exclusive.handed(new)
        worker = self._checker.workers.may_receive(new.worker_id)
        fits = worker.queue == new.queue and worker.namespace == new.namespace
        if worker.mode == "session" and new.session_no != worker.session_no:
            self._fail("was handed to a session that is over", new)
        if new.type not in worker.types or not fits:
            self._fail("was handed to a worker that did not offer it", new)
        is_run = new.kind is TaskKind.WORKFLOW
        if new.is_cancel_requested and not is_run:
            self._fail("was handed out although it is to be cancelled", new)
        was_paused = old is not None and old.state is TaskState.PAUSED
        if was_paused and not self._may_go_on(new):
            self._fail("was handed out while it was paused", new)

    def _may_go_on(self, task: Task) -> bool:
        """Tell whether somebody has asked for a paused task to go on."""
        key = (task.namespace, task.id)
        is_told = task.kind is TaskKind.WORKFLOW and key in self._world.request_log.cancelled
        return is_told or key in self._world.request_log.resumed

    def _waited(self, old: Task, new: Task, *, is_handed: bool) -> None:
        """Check what became of a task that nobody held."""
        key = (new.namespace, new.id)
        request_log = self._world.request_log
        is_asleep = old.state is TaskState.WAITING and not old.progress.is_async
        is_awake = is_handed or new.state is TaskState.PENDING
        if is_asleep and is_awake and not self._checker.journals.may_wake(old):
            self._fail("was woken by nothing", new)
        if is_handed:
            return
        if new.state in TERMINAL:
            self._check_unheld_end(old, new)
        elif new.state is TaskState.PAUSED and key not in request_log.paused:
            self._fail("was paused by nobody", new)
        elif old.state is TaskState.PAUSED and new.state is not TaskState.PAUSED:
            if not self._may_go_on(new):
                self._fail("was resumed by nobody", new)
        elif new.is_attempt_live:
            self._fail("holds an attempt that was over", new)
        is_ready = new.line is not Line.NONE and old.line is Line.NONE
        if is_ready and self._world.clock.now_ms() < new.run_at_ms:
            self._fail("starts before its time", new)

    def _check_unheld_end(self, old: Task, new: Task) -> None:
        key = (new.namespace, new.id)
        request_log = self._world.request_log
        now_ms = self._world.clock.now_ms()
        spec = old.spec
        is_closed = bool(spec.close_at_ms) and now_ms >= spec.close_at_ms
        start_ms = spec.schedule_to_start_ms
        is_unstarted = bool(start_ms) and now_ms >= old.progress.ready_at_ms + start_ms
        if new.state is TaskState.CANCELLED and key in request_log.cancelled:
            if old.kind is TaskKind.WORKFLOW and old.attempt and not is_closed:
                self._fail("was cancelled without a clean-up", new)
            return
        if new.state is TaskState.FAILED:
            if new.progress.reason is Reason.TERMINATED and key in request_log.terminated:
                return
            if is_closed or is_unstarted:
                return
        self._fail(f"ended by {new.progress.reason}, and nobody held it", new)

    def _went_on(self, old: Task, new: Task) -> None:
        """Check a change of a live attempt that stays live."""
        key = (new.namespace, new.id)
        request_log = self._world.request_log
        if new.worker_id != old.worker_id:
            deferred = [f for f in request_log.finishes_of(old) if f.kind is c.FinishKind.DEFERRED]
            if new.worker_id is not None or not deferred:
                self._fail("changed its holder", new)
        if old.state is TaskState.DISPATCHED and new.state is not TaskState.DISPATCHED:
            report = (*key, old.attempt, old.worker_id)
            if report not in request_log.reports and (*report[:3], None) not in request_log.reports:
                self._fail("was confirmed by nobody", new)
        elif new.state is TaskState.DISPATCHED and old.state is not TaskState.DISPATCHED:
            self._fail("was confirmed and is not any more", new)
        if new.state is TaskState.CANCELLING and key not in request_log.cancelled:
            self._fail("is to be cancelled, but nobody asked for it", new)
        progress = new.progress
        heard = (progress.confirmed_at_ms, progress.beat_at_ms)
        if heard != (old.progress.confirmed_at_ms, old.progress.beat_at_ms):
            self._heard_at_ms[key] = self._world.now_ms

    # -- The end of an attempt -----------------------------------------------------------------

    def _ended(self, old: Task, new: Task, server: Server) -> None:
        key = (old.namespace, old.id)
        is_run = old.kind is TaskKind.WORKFLOW
        outcome = new.last_outcome
        if new.finished_at_ms is None:
            record = self._checker.ended(key, old.attempt)
            outcome = record.outcome if record is not None else self._unrecorded(old, new)
        assert outcome is not None
        self.ended_counts[outcome] += 1
        self._check_outcome(old, new, outcome, server)
        if is_run and new.state is TaskState.CANCELLED:
            self._check_cleaned(old, new, outcome)
        self._check_charge(old, new, outcome)
        is_held = old.progress.pause_wanted and not self._may_go_on(new)
        if is_held and new.state not in (TaskState.PAUSED, *TERMINAL):
            self._fail("was to be paused and is not", new)
        if old.is_cancel_requested and new.state not in TERMINAL and not is_run:
            self._fail("goes on although it is to be cancelled", new)

    def _unrecorded(self, old: Task, new: Task) -> Outcome:
        """Return how an attempt of a run ended of which no record is kept: its holder said so."""
        kinds = {each.kind for each in self._world.request_log.finishes_of(old)}
        key = (old.namespace, old.id, old.attempt)
        if old.kind is TaskKind.WORKFLOW and new.link is not None and old.link is not None:
            is_anew = new.link.journal_id != old.link.journal_id
            if is_anew and c.FinishKind.CONTINUED in kinds:
                self.yielded.add(key)
                return Outcome.CONTINUED
            if not is_anew and c.FinishKind.YIELDED in kinds:
                return Outcome.YIELDED
        self._fail(f"lost the record of attempt {old.attempt}", new)
        raise AssertionError

    def _check_yielded(self, old: Task, new: Task) -> None:
        """A run that has seen all of its journal waits; another one does not."""
        self.yielded.add((old.namespace, old.id, old.attempt))
        run, said = new.progress.run, self._world.request_log.finishes_of(old)
        wishes = [each.wish for each in said if each.kind is c.FinishKind.YIELDED]
        if run is None or run.seen not in [each.seen for each in wishes if each is not None]:
            self._fail("has not seen what it says", new)
        elif new.state is TaskState.PENDING and not self._checker.journals.is_behind(new):
            self._fail("does not wait although it has seen everything", new)

    def _check_outcome(self, old: Task, new: Task, outcome: Outcome, server: Server) -> None:
        held = TaskRef(old.id, old.attempt)
        match outcome:
            case Outcome.YIELDED | Outcome.SLEPT:
                self._check_yielded(old, new)
            case (
                Outcome.SUCCEEDED
                | Outcome.FAILED
                | Outcome.RELEASED
                | Outcome.PARKED
                | Outcome.CONTINUED
            ):
                self._check_reported(old, new, outcome)
            case Outcome.CANCELLED | Outcome.CANCEL_TIMEOUT:
                self._check_cancelled(old, new, outcome, server)
            case Outcome.WORKER_LOST:
                if self._checker.status(old.worker_id or "") != "offline":
                    self._fail("was taken from a worker that is there", new)
            case Outcome.LOST_TASK:
                if self._world.holds(old.worker_id or "", held):
                    self._fail("was taken from a worker that reports it", new)
            case Outcome.UNDELIVERED:
                self._check_undelivered(old, new, server)
            case Outcome.TIMED_OUT:
                self._check_timeout(old, new, server)

    def _check_cleaned(self, old: Task, new: Task, outcome: Outcome) -> None:
        """A run is cancelled by its body, or by its time limit; never because it was lost."""
        if outcome in (Outcome.WORKER_LOST, Outcome.LOST_TASK, Outcome.RELEASED):
            self._fail(f"was cancelled without a clean-up by {outcome}", new)
        elif not old.is_cancel_requested and not new.is_cancel_requested:
            self._fail("was cancelled, and nobody asked for it", new)

    def _check_reported(self, old: Task, new: Task, outcome: Outcome) -> None:
        kind = _REPORTED[outcome]
        said = [each for each in self._world.request_log.finishes_of(old) if each.kind is kind]
        if outcome is Outcome.SUCCEEDED:
            said = [each for each in said if each.output == new.output]
            if new.state is not TaskState.SUCCEEDED:
                self._fail("succeeded and did not end", new)
        if not said:
            self._fail(f"ended as {outcome}, but its holder did not say so", new)

    def _check_cancelled(self, old: Task, new: Task, outcome: Outcome, server: Server) -> None:
        key = (old.namespace, old.id)
        request_log = self._world.request_log
        if key in request_log.terminated and new.progress.reason is Reason.TERMINATED:
            return
        said = [each.kind for each in request_log.finishes_of(old)]
        if outcome is Outcome.CANCEL_TIMEOUT:
            grace_ms = old.spec.cancel_grace_ms
            if key not in request_log.cancelled:
                self._fail("ran out of a grace that nobody started", new)
            self._check_sighted(old, new, server, grace_ms, "the cancel grace")
        elif key not in request_log.cancelled and c.FinishKind.CANCELLED not in said:
            self._fail("was cancelled by nobody", new)
        elif old.state is not TaskState.DISPATCHED and c.FinishKind.CANCELLED not in said:
            self._fail("was cancelled while its worker ran it", new)

    def _check_undelivered(self, old: Task, new: Task, server: Server) -> None:
        if old.state is not TaskState.DISPATCHED:
            self._fail("is undelivered although it was confirmed", new)
        if not self._world.holds(old.worker_id or "", TaskRef(old.id, old.attempt)):
            return
        waited_ms = self._world.now_ms - self._handed_at_ms[old.namespace, old.id]
        period_ms = old.spec.delivery_timeout_ms
        if waited_ms < period_ms * DRIFT - ROUNDING_MS:
            self._fail(f"is undelivered after {waited_ms:.0f} of {period_ms}", new)
        self._check_sighted(old, new, server, period_ms, "the delivery")

    def _check_timeout(self, old: Task, new: Task, server: Server) -> None:
        now_ms = self._world.clock.now_ms()
        spec = old.spec
        key = (old.namespace, old.id)
        if spec.start_to_close_ms and now_ms >= old.handed_at_ms + spec.start_to_close_ms:
            return
        if spec.close_at_ms and now_ms >= spec.close_at_ms:
            return
        if old.state is TaskState.CANCELLING and old.worker_id is None:
            return
        if not spec.heartbeat_timeout_ms or old.state is TaskState.DISPATCHED:
            self._fail("timed out, but no deadline is over", new)
        silent_ms = self._world.now_ms - self._heard_at_ms.get(key, 0)
        if silent_ms < spec.heartbeat_timeout_ms * DRIFT - ROUNDING_MS:
            self._fail(f"missed a heartbeat after {silent_ms:.0f}", new)
        self._check_sighted(old, new, server, spec.heartbeat_timeout_ms, "the heartbeat")

    def _check_sighted(
        self, old: Task, new: Task, server: Server, period_ms: int, what: str
    ) -> None:
        """Only a server that could hear for one full period may judge silence."""
        del old
        world = self._world
        least_ms = period_ms * DRIFT - ROUNDING_MS
        since_ms = max(server.started_at_ms, world.jumped_at_ms)
        if world.now_ms - since_ms < least_ms:
            sighted_ms = world.now_ms - since_ms
            self._fail(f"had {what} judged by a server blind but for {sighted_ms:.0f}", new)

    def _check_charge(self, old: Task, new: Task, outcome: Outcome) -> None:
        charge = CHARGES[outcome]
        failures = new.progress.failure_count - old.progress.failure_count
        losses = new.progress.interruption_count - old.progress.interruption_count
        if old.is_cancel_requested or new.state is TaskState.CANCELLED:
            return
        is_deadline = new.progress.reason in (Reason.SCHEDULE_TO_CLOSE, Reason.SCHEDULE_TO_START)
        if failures != (charge is Charge.RETRY_POLICY) and not is_deadline:
            self._fail(f"was charged {failures} failures for {outcome}", new)
        if outcome in (Outcome.YIELDED, Outcome.CONTINUED):
            losses = new.progress.interruption_count
        if losses != (charge is Charge.INTERRUPTIONS):
            self._fail(f"was charged {losses} interruptions for {outcome}", new)

    # -- All tasks -----------------------------------------------------------------------------

    def _check_future(self, task: Task) -> None:
        """Every live task has something that will happen to it."""
        if task.due_at_ms is not None or task.state is TaskState.PAUSED:
            return
        if task.line is not Line.NONE:
            return
        if task.state is TaskState.WAITING and task.kind is TaskKind.WORKFLOW:
            return  # It waits for a signal.
        worker = self._checker.workers.rows.get(task.worker_id or "")
        if worker is not None and (worker.release_pending or worker.status != "offline"):
            return
        self._fail("has nothing that will ever happen to it", task)

    def assigned(self, changes: list[tuple[Task | None, Task]]) -> None:
        """Check what a commit handed out against slots and the brakes of queues."""
        handed = [
            new
            for old, new in changes
            if new.attempt == (0 if old is None else old.attempt) + 1 and new.worker_id is not None
        ]
        if not handed:
            return
        live = self._checker.live.values()
        by_worker = Counter(task.worker_id for task in live if task.worker_id is not None)
        for worker_id in {task.worker_id for task in handed if task.worker_id is not None}:
            worker = self._checker.workers.rows[worker_id]
            self._checker.workers.check_slots(worker, by_worker[worker_id])
        by_queue = Counter((t.namespace, t.queue) for t in live if t.worker_id is not None)
        for task in handed:
            is_paused, most = self._checker.brakes(task.namespace, task.queue)
            if is_paused:
                self._fail("was handed out of a paused queue", task)
            if most and by_queue[task.namespace, task.queue] > most:
                self._fail(f"is one more than the {most} of its queue", task)

    def watch(self) -> None:
        """Check that no dispatched task waits for its confirmation for too long."""
        world = self._world
        # A server that stalls when the timer fires gives the whole period again.
        periods = 3 if world.faults.pause_share else 1
        for key, task in self._checker.live.items():
            if task.state is TaskState.DISPATCHED:
                period_ms = periods * task.spec.delivery_timeout_ms
                since_ms = max(self._handed_at_ms[key], world.troubled_at_ms + period_ms)
                if world.now_ms - since_ms > period_ms + world.slack_ms:
                    self._fail("is neither confirmed nor pending again", task)
