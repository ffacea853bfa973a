"""Invariants of served workers: one owner hands out, every call says what the rows say."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tenure.core.seat.kill import Kill, KillReason
from tenure.core.task.record import Task, TaskState
from tenure.core.worker.record import WorkerMode
from tenure.engine.command import TaskRef
from tenure.engine.seat.call import Call, CallAnswer
from tenure.engine.worker.command import Heartbeat
from tests.sim.trace import Violation, short

if TYPE_CHECKING:
    from tests.sim.served import ServedProcess
    from tests.sim.server import Server
    from tests.sim.world import World

# News of other servers are half a second late without hints, a second with lost ones; and a server
# may pause before it performs its effects.
UNSAID_MS: Final = 3_000
FAILURES_MIN: Final = 3


class ServedRules:
    """What is known about calls."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._mute_until_ms: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._totals: dict[str, set[tuple[int, int]]] = {}
        # Since when answered calls of a session lack an attempt that they should carry.
        self._unsaid: dict[tuple[str, int], dict[TaskRef, float]] = {}

    def mute(self, process: ServedProcess, ms: float) -> None:
        """Let no answer of a process reach a server for a while."""
        self._world.note(f"answers of {process.name} are lost for {ms:.0f}")
        self._mute_until_ms[process.name] = self._world.now_ms + ms

    def is_mute(self, process: ServedProcess) -> bool:
        """Tell whether the answers of a process are lost."""
        is_over = self._world.now_ms >= self._mute_until_ms.get(process.name, 0)
        return not is_over and not self._world.is_healed

    # -- Calls

    def failed(self, call: Call) -> None:
        """Note a call without an answer."""
        self._failures[call.worker_id] = self._failures.get(call.worker_id, 0) + 1

    def answered(self, call: Call, answer: CallAnswer) -> None:
        """Note an answer; check that calls say what the rows say."""
        self._failures[call.worker_id] = 0
        totals = (answer.total_completed, answer.total_failed)
        self._totals.setdefault(call.worker_id, set()).add(totals)
        said = {TaskRef(task.id, task.attempt) for task in call.tasks}
        said |= {TaskRef(kill.task_id, kill.attempt) for kill in call.kills}
        unsaid = self._unsaid.setdefault((call.worker_id, call.session_no), {})
        now_ms, wanted = self._world.now_ms, self._wanted(call)
        for ref in [ref for ref in unsaid if ref not in wanted or ref in said]:
            del unsaid[ref]
        for ref in wanted - said:
            since_ms = max(unsaid.setdefault(ref, now_ms), self._world.troubled_at_ms)
            if now_ms - since_ms > UNSAID_MS:
                message = (
                    f"calls do not tell worker {short(call.worker_id)} of {short(ref.task_id)}"
                )
                self._world.fail(Violation(message, ref.task_id, call.worker_id))

    def _wanted(self, call: Call) -> set[TaskRef]:
        """Return what a call has to carry, according to the rows of now."""
        states = {TaskState.DISPATCHED, TaskState.CANCELLING}
        return {
            TaskRef(task.id, task.attempt)
            for task in self._world.checker.live.values()
            if task.worker_id == call.worker_id and task.state in states
        }

    def carried_is_held(self, process: ServedProcess) -> Callable[[Task], None]:
        """Return the rule that only activities reach a served worker, and only its own."""

        def rule(task: Task) -> None:
            if task.kind != "activity":
                raise Violation(f"run {short(task.id)} was carried to a served worker", task.id)
            if task.worker_id != process.worker_id:
                raise Violation(f"a foreign task was carried to {process.name}", task.id)

        return rule

    def killed(self, process: ServedProcess, kill: Kill) -> None:
        """Check that nothing live is stopped, and nothing is cancelled that nobody cancelled."""
        key = (process.namespace, kill.task_id)
        task = self._world.checker.live.get(key)
        is_live = (
            task is not None
            and task.attempt == kill.attempt
            and task.worker_id == process.worker_id
            and task.is_attempt_live
        )
        name = f"{short(kill.task_id)}#{kill.attempt}"
        if kill.reason is KillReason.NOT_HELD and is_live:
            message = f"{process.name} is told to stop its live attempt {name}"
            self._world.fail(Violation(message, kill.task_id))
        if kill.reason is KillReason.CANCEL and key not in self._world.request_log.cancelled:
            self._world.fail(Violation(f"{name} is cancelled by nobody", kill.task_id))

    # -- Rows

    def beat(self, command: Heartbeat) -> None:
        """Check that a heartbeat of a driver says what its worker has answered."""
        totals = (command.beat.total_completed, command.beat.total_failed)
        if totals not in self._totals.get(command.worker_id, set()):
            message = f"a server made up the totals of worker {short(command.worker_id)}"
            self._world.fail(Violation(message, command.worker_id))
        self._world.request_log.beats[command.worker_id, command.beat.token].append(command.beat)

    def handed(self, task: Task, server: Server) -> None:
        """Check that only the owner of its seat hands out to a served worker."""
        worker = self._world.checker.workers.rows.get(task.worker_id or "")
        if worker is None or worker.mode is not WorkerMode.SERVED or server.engine is None:
            return
        if task.session_no != worker.session_no:
            message = f"task {short(task.id)} was handed to a former session"
            raise Violation(message, task.id, worker.id)
        owner = self._world.checker.seat_owner(worker.id)
        if owner not in (None, server.engine.server_id):
            message = f"server {server.number} handed out to worker {short(worker.id)} of another"
            raise Violation(message, task.id, worker.id)

    def check_unreachable(self, worker_id: str) -> None:
        """Check that several calls in a row had failed."""
        if self._failures.get(worker_id, 0) < FAILURES_MIN:
            count = self._failures.get(worker_id, 0)
            message = f"worker {short(worker_id)} is unreachable after {count} failed calls"
            raise Violation(message, worker_id)
