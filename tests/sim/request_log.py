"""What parties asked for and what they were told: the evidence that the checker goes by."""

# The tables at the end name the methods of the ledger.
# ruff: noqa: SLF001

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from tenure.core.journal.entry import EntryBody, EntryKind
from tenure.core.task.record import NewTask, Task, TaskState
from tenure.core.worker.lease import Beat
from tenure.engine.command import TaskRef
from tenure.engine.engine import Engine
from tenure.engine.run.child_command import CancelChildren, SpawnReport, SpawnTasks
from tenure.engine.run.command import (
    CancelRun,
    RecordSteps,
    ResumeRun,
    Signalled,
    SignalRun,
    StartRun,
    StepAnswer,
    StepsPlaced,
    TerminateRun,
)
from tenure.engine.task.command import (
    CancelTask,
    CompleteById,
    ConfirmTasks,
    Enqueued,
    EnqueueTasks,
    Finish,
    FinishKind,
    FinishTasks,
    HeartbeatTasks,
    ItemAnswer,
    PauseTask,
    Reported,
    ResumeTask,
    RetryTask,
    TerminateTask,
)
from tenure.engine.worker.command import (
    DeregisterWorker,
    DrainWorker,
    EvictWorker,
    Heartbeat,
    HeldAnswer,
    OpenSession,
    RegisterWorker,
    Renewed,
)
from tests.sim.trace import Violation, short

if TYPE_CHECKING:
    from tests.sim.world import World

Key = tuple[str, str]
StepContent = tuple[EntryKind, str, EntryBody]


class HeartbeatCall(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's heartbeat with what it says about attempts."""

    namespace: str
    worker_id: str
    beat: Beat
    bound: tuple[TaskRef, ...] = ()
    unbound: tuple[TaskRef, ...] = ()
    held: tuple[TaskRef, ...] | None = None

    async def send(self, engine: Engine) -> tuple[Renewed, HeldAnswer]:
        """Do what the edge of a server does with it."""
        command = Heartbeat(
            namespace=self.namespace,
            worker_id=self.worker_id,
            beat=replace(self.beat, server_id=engine.server_id),
            wants_cancels=True,
        )
        return await engine.heartbeat(
            command, bound=self.bound, unbound=self.unbound, held=self.held
        )


class RequestLog:
    """Requests that reached a server, and answers that left one."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.command_count = 0
        self.enqueued: dict[Key, NewTask | None] = {}
        self.keys: dict[Key, str] = {}
        self.reports: set[tuple[str, str, int, str | None]] = set()
        self.finishes: dict[tuple[str, str, int], list[tuple[str | None, Finish]]]
        self.finishes = defaultdict(list)
        self.cancelled: set[Key] = set()
        self.paused: set[Key] = set()
        self.resumed: set[Key] = set()
        self.terminated: set[Key] = set()
        # By namespace, run, worker, attempt and number; and by run.
        self.steps: dict[tuple[str, str, str | None, int, int], list[StepContent]]
        self.steps = defaultdict(list)
        self.signals: dict[Key, set[bytes | None]] = defaultdict(set)
        # By the journal of the run and the key of the call.
        self.groups: dict[tuple[str, str], SpawnReport] = {}
        self.closed_groups: set[tuple[str, str]] = set()
        self.beats: dict[tuple[str, int], list[Beat]] = defaultdict(list)
        self.drained: set[Key] = set()
        self.evicted: set[Key] = set()
        self.deregistered: set[Key] = set()
        self.names: dict[Key, int] = defaultdict(int)
        self.lost_sessions: dict[str, float] = {}

    # -- Requests ------------------------------------------------------------------------------

    def arrived(self, request: Any) -> None:
        """Note what a request, now at a server, may change."""
        self.command_count += 1
        take = _TAKE.get(type(request))
        if take is not None:
            take(self, request)

    def _enqueue(self, command: EnqueueTasks) -> None:
        for new in command.tasks:
            self.enqueued.setdefault((command.namespace, new.id), new)

    def _retry(self, command: RetryTask) -> None:
        self.enqueued.setdefault((command.namespace, command.new_task_id), None)

    def _confirm(self, command: ConfirmTasks | HeartbeatTasks) -> None:
        for item in command.items:
            self._reported(command.namespace, item.task_id, item.attempt, command.worker_id)

    def _reported(self, namespace: str, task_id: str, attempt: int, who: str | None) -> None:
        self.reports.add((namespace, task_id, attempt, who))

    def called(self, namespace: str, worker_id: str, running: Iterable[TaskRef]) -> None:
        """Note what the answer to a call reports."""
        self.command_count += 1
        for ref in running:
            self._reported(namespace, ref.task_id, ref.attempt, worker_id)

    def _heartbeat(self, call: HeartbeatCall) -> None:
        self.beats[call.worker_id, call.beat.token].append(call.beat)
        for ref in (*call.bound, *(call.held or ())):
            self._reported(call.namespace, ref.task_id, ref.attempt, call.worker_id)

    def _open(self, command: OpenSession) -> None:
        for ref in command.held:
            self._reported(command.namespace, ref.task_id, ref.attempt, command.worker_id)

    def _finish(self, command: FinishTasks) -> None:
        for item in command.items:
            key = (command.namespace, item.task_id, item.attempt)
            self.finishes[key].append((command.worker_id, item))
            self._reported(*key, command.worker_id)
            self._world.note(
                f"worker {short(command.worker_id or '')} reports {item.kind} of task "
                f"{short(item.task_id)}#{item.attempt}"
            )

    def _complete(self, command: CompleteById) -> None:
        item = command.finish
        self.finishes[command.namespace, item.task_id, item.attempt].append((None, item))

    def _cancel(self, command: CancelTask) -> None:
        self.cancelled.add((command.namespace, command.task_id))
        self._world.note(f"cancel of task {short(command.task_id)}")

    def _start_run(self, command: StartRun) -> None:
        key = (command.namespace, command.new.id)
        self.enqueued.setdefault(key, command.new)
        self.signals[key].update(each.payload for each in command.signals)

    def _record(self, command: RecordSteps) -> None:
        for item in command.items:
            for no, entry in enumerate(item.entries, item.first_no):
                place = (command.namespace, item.task_id, command.worker_id, item.attempt, no)
                self.steps[place].append((entry.kind, entry.key, entry.body))

    def _spawn(self, command: SpawnTasks) -> None:
        for item in command.items:
            for each in item.children:
                self.enqueued.setdefault((command.namespace, each.new.id), each.new)
            journal_id = self._journal_of((command.namespace, item.task_id), item.attempt)
            if item.group_key and journal_id is not None:
                self.groups.setdefault((journal_id, item.group_key), item)

    def _cancel_children(self, command: CancelChildren) -> None:
        for item in command.items:
            self.cancelled.update((command.namespace, each) for each in item.child_ids)
            journal_id = self._journal_of((command.namespace, item.task_id), item.attempt)
            if item.group_key and journal_id is not None:
                self.closed_groups.add((journal_id, item.group_key))
                children = self._world.checker.journals.children
                children.close_group(command.namespace, journal_id, item.group_key)

    def _journal_of(self, key: Key, attempt: int) -> str | None:
        """Return the journal of a run whose holder speaks, if it still holds it."""
        task = self._world.checker.live.get(key)
        if task is None or task.attempt != attempt or task.link is None:
            return None
        return task.link.journal_id

    def _signal(self, command: SignalRun) -> None:
        self.signals[command.namespace, command.run_id].add(command.signal.payload)

    def _change_run(self, command: CancelRun | ResumeRun | TerminateRun) -> None:
        asked = {CancelRun: self.cancelled, ResumeRun: self.resumed, TerminateRun: self.terminated}
        asked[type(command)].add((command.namespace, command.run_id))
        self._world.note(f"{type(command).__name__} {short(command.run_id)}")

    def _pause(self, command: PauseTask) -> None:
        self.paused.add((command.namespace, command.task_id))

    def _resume(self, command: ResumeTask) -> None:
        self.resumed.add((command.namespace, command.task_id))

    def _terminate(self, command: TerminateTask) -> None:
        self.terminated.add((command.namespace, command.task_id))

    def _drain(self, command: DrainWorker) -> None:
        self.drained.add((command.namespace, command.worker_id))

    def _evict(self, command: EvictWorker) -> None:
        self.evicted.add((command.namespace, command.worker_id))

    def _deregister(self, command: DeregisterWorker) -> None:
        self.deregistered.add((command.namespace, command.worker_id))

    def _register(self, command: RegisterWorker) -> None:
        self.names[command.namespace, command.new.name] += 1

    def session_lost(self, worker_id: str) -> None:
        """Note that a server saw the end of a session."""
        self.lost_sessions[worker_id] = self._world.now_ms

    def finishes_of(self, task: Task) -> list[Finish]:
        """Return the ends of the live attempt that its holder, or a key, has reported."""
        key = (task.namespace, task.id)
        named = self.finishes.get((*key, task.attempt), [])
        unnamed = self.finishes.get((*key, 0), [])
        return [
            finish
            for worker_id, finish in (*named, *unnamed)
            if worker_id is None or worker_id == task.worker_id
        ]

    # -- Answers -------------------------------------------------------------------------------

    def answered(self, request: Any, answer: object) -> None:
        """Check what leaves a server against what is stored."""
        check = _ANSWERED.get(type(request))
        if check is None or isinstance(answer, Exception):
            return
        try:
            check(self, request, answer)
        except Violation as violation:
            self._world.fail(violation)

    def _was_enqueued(self, command: EnqueueTasks, answer: tuple[Enqueued, ...]) -> None:
        for new, told in zip(command.tasks, answer, strict=True):
            key = (command.namespace, told.task_id)
            self._world.checker.find(key, "an acknowledged task is not stored")
            if not new.idempotency_key:
                continue
            first = self.keys.setdefault((command.namespace, new.idempotency_key), told.task_id)
            if first != told.task_id:
                message = f"one idempotency key gave tasks {short(first)}, {short(told.task_id)}"
                raise Violation(message, first, told.task_id)

    def _was_retried(self, command: RetryTask, answer: Enqueued) -> None:
        key = (command.namespace, answer.task_id)
        self._world.checker.find(key, "an acknowledged retry is not stored")

    def _was_finished(self, command: FinishTasks, answer: tuple[ItemAnswer, ...]) -> None:
        for item, told in zip(command.items, answer, strict=True):
            if item.kind is FinishKind.DEFERRED:
                continue  # Its end, whatever it is, may have come before this answer.
            if item.kind in (FinishKind.YIELDED, FinishKind.CONTINUED):
                self._had_yielded(command, item, told)
                continue
            is_kept = self._world.checker.is_kept(command.namespace, item)
            name = f"{item.kind} of task {short(item.task_id)}#{item.attempt}"
            if isinstance(told, Reported):
                if not is_kept:
                    message = f"the acknowledged {name} is not stored"
                    raise Violation(message, item.task_id)
            elif is_kept:
                message = f"the accepted {name}, repeated, got {told.code}"
                raise Violation(message, item.task_id)

    def _had_yielded(self, command: FinishTasks, item: Finish, told: ItemAnswer) -> None:
        """Check a yield or a new round: no record is kept once the run is handed out again."""
        checker = self._world.checker
        is_kept = (command.namespace, item.task_id, item.attempt) in checker.tasks.yielded
        task = checker.find((command.namespace, item.task_id), "a report names no task")
        name = f"{item.kind} of run {short(item.task_id)}#{item.attempt}"
        # Something else may end the run in the commit that takes the report.
        has_ended = task.finished_at_ms is not None and task.attempt == item.attempt
        if isinstance(told, Reported) and not is_kept and not has_ended:
            raise Violation(f"the acknowledged {name} is not stored", item.task_id)
        if not isinstance(told, Reported) and is_kept and task.attempt == item.attempt:
            raise Violation(f"the accepted {name}, repeated, got {told.code}", item.task_id)

    def _was_cancelled(self, command: CancelTask, answer: Reported) -> None:
        del answer
        key = (command.namespace, command.task_id)
        task = self._world.checker.find(key, "an acknowledged cancel names no task")
        if task.finished_at_ms is None and not task.is_cancel_requested:
            raise Violation(f"the acknowledged cancel of {short(task.id)} is not stored", task.id)

    def _was_recorded(self, command: RecordSteps, answer: tuple[StepAnswer, ...]) -> None:
        checker = self._world.checker
        for item, told in zip(command.items, answer, strict=True):
            key = (command.namespace, item.task_id)
            live = checker.live.get(key)
            held = live is not None and (live.worker_id, live.attempt)
            if isinstance(told, StepsPlaced):
                checker.journals.check_places(key, item, told.places)
            elif held == (command.worker_id, item.attempt) and told.code not in _PUT_OFF:
                message = f"the holder of run {short(item.task_id)} got {told.code}"
                raise Violation(message, item.task_id)

    def _was_signalled(self, command: SignalRun, answer: Signalled) -> None:
        del answer
        key = (command.namespace, command.run_id)
        self._world.checker.journals.check_signal(key, command.signal.payload)

    def _was_started(self, command: StartRun, answer: Enqueued) -> None:
        self._was_enqueued(command.request, (answer,))

    def _was_run_cancelled(self, command: CancelRun, answer: Reported) -> None:
        wish = CancelTask(namespace=command.namespace, task_id=command.run_id)
        self._was_cancelled(wish, answer)

    def _was_resumed(self, command: ResumeRun, answer: Reported) -> None:
        if answer.state in (TaskState.PAUSED, TaskState.WAITING):
            message = f"run {short(command.run_id)} is {answer.state} after its resume"
            raise Violation(message, command.run_id)

    def _was_terminated(self, command: TerminateRun, answer: Reported) -> None:
        task = self._world.checker.find(
            (command.namespace, command.run_id), "an acknowledged end names no run"
        )
        if answer.state is not TaskState.FAILED or task.state is not TaskState.FAILED:
            message = f"the acknowledged end of {short(task.id)} is not stored"
            raise Violation(message, task.id)

    def _was_paused(self, command: PauseTask, answer: Reported) -> None:
        self._world.note(f"pause of task {short(command.task_id)}: {answer.state}")

    def _was_drained(self, command: DrainWorker, answer: object) -> None:
        del answer
        if self._world.checker.status(command.worker_id) == "online":
            message = f"the acknowledged drain of {short(command.worker_id)} is not stored"
            raise Violation(message, command.worker_id)

    def _was_completed(self, command: CompleteById, answer: Reported) -> None:
        if answer.state is TaskState.SUCCEEDED:
            key = (command.namespace, command.finish.task_id)
            task = self._world.checker.find(key, "an acknowledged completion names no task")
            if task.state is not TaskState.SUCCEEDED:
                raise Violation(f"the acknowledged completion of {task.id} is lost", task.id)


_TAKE: Final[dict[type, Callable[[RequestLog, Any], None]]] = {
    EnqueueTasks: RequestLog._enqueue,
    RetryTask: RequestLog._retry,
    ConfirmTasks: RequestLog._confirm,
    HeartbeatTasks: RequestLog._confirm,
    HeartbeatCall: RequestLog._heartbeat,
    OpenSession: RequestLog._open,
    FinishTasks: RequestLog._finish,
    CompleteById: RequestLog._complete,
    CancelTask: RequestLog._cancel,
    PauseTask: RequestLog._pause,
    ResumeTask: RequestLog._resume,
    TerminateTask: RequestLog._terminate,
    DrainWorker: RequestLog._drain,
    EvictWorker: RequestLog._evict,
    DeregisterWorker: RequestLog._deregister,
    RegisterWorker: RequestLog._register,
    StartRun: RequestLog._start_run,
    RecordSteps: RequestLog._record,
    SpawnTasks: RequestLog._spawn,
    CancelChildren: RequestLog._cancel_children,
    SignalRun: RequestLog._signal,
    CancelRun: RequestLog._change_run,
    ResumeRun: RequestLog._change_run,
    TerminateRun: RequestLog._change_run,
}
# Of a report that comes before its time, or before another one.
_PUT_OFF: Final = ("too_early", "out_of_order")
_ANSWERED: Final[dict[type, Callable[[RequestLog, Any, Any], None]]] = {
    EnqueueTasks: RequestLog._was_enqueued,
    RetryTask: RequestLog._was_retried,
    FinishTasks: RequestLog._was_finished,
    CancelTask: RequestLog._was_cancelled,
    PauseTask: RequestLog._was_paused,
    DrainWorker: RequestLog._was_drained,
    CompleteById: RequestLog._was_completed,
    StartRun: RequestLog._was_started,
    RecordSteps: RequestLog._was_recorded,
    SignalRun: RequestLog._was_signalled,
    CancelRun: RequestLog._was_run_cancelled,
    ResumeRun: RequestLog._was_resumed,
    TerminateRun: RequestLog._was_terminated,
}
