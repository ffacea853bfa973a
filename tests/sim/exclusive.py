"""Exclusive work: what runs where, and that nobody is handed a task while another may run it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tenure.core.limits import EXCLUSIVE_KILL_MS
from tenure.core.task.attempt import Outcome
from tenure.core.task.record import Task
from tests.sim.heartbeat_state import FENCE_MARGIN_MS
from tests.sim.trace import Violation, short

if TYPE_CHECKING:
    from tests.sim.worker import Held, WorkerProcess
    from tests.sim.world import World

TYPE: Final = "gamma"
# A worker stops by its own clock at least so long before anybody else is handed the task. Leases
# are short here, and so is what a worker keeps of them for itself.
GAP_MS: Final = FENCE_MARGIN_MS + EXCLUSIVE_KILL_MS
ROUNDING_MS: Final = 5


class ExclusiveRuns:
    """Every run of exclusive work that began in this world, by its task."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._runs: dict[str, list[tuple[WorkerProcess, Held]]] = {}

    def begun(self, process: WorkerProcess, held: Held) -> None:
        """Note that a process runs exclusive work from now on."""
        self._runs.setdefault(held.task.id, []).append((process, held))
        self.went_on(process, held)

    def went_on(self, process: WorkerProcess, held: Held) -> None:
        """Check that what a process goes on with is still its own."""
        live = self._world.checker.live.get((held.task.namespace, held.task.id))
        if live is not None and live.attempt > held.ref.attempt:
            self._fail(f"runs beside attempt {live.attempt}", process, held)

    def handed(self, task: Task) -> None:
        """Check that nobody runs, or just ran, an earlier attempt of what is handed out."""
        for process, held in self._runs.get(task.id, ()):
            if process.is_running(held) and not process.is_paused:
                self._fail("was handed out while it runs", process, held)
            if held.fenced_at_ms is not None and self._is_taken_away(task, held):
                gap_ms = self._world.now_ms - held.fenced_at_ms
                if gap_ms < GAP_MS - ROUNDING_MS:
                    self._fail(f"was handed out {gap_ms:.0f} after its stop", process, held)

    def _is_taken_away(self, task: Task, held: Held) -> bool:
        """Tell whether the server ended an attempt by itself, and not by its worker's word."""
        ended = self._world.checker.ended((task.namespace, task.id), held.ref.attempt)
        return ended is not None and ended.outcome in (Outcome.WORKER_LOST, Outcome.TIMED_OUT)

    def _fail(self, what: str, process: WorkerProcess, held: Held) -> None:
        ref = held.ref
        message = f"exclusive task {short(ref.task_id)}#{ref.attempt} of {process.name} {what}"
        raise Violation(message, ref.task_id, held.worker_id)
