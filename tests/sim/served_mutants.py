"""Deliberate bugs in how servers drive served workers, and in a worker's own clock."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from tenure.core.task.record import TaskState
from tenure.core.worker.decide import SessionOpened
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.command import TaskRef
from tenure.engine.seat.call import Ack
from tenure.engine.seat.served_answer import ServedAnswer
from tenure.engine.seat.served_content import ServedContent
from tenure.engine.task.command import Reported
from tests.sim.faults import Faults
from tests.sim.mutant import Function, Mutant
from tests.sim.served import ServedProcess

SERVED: Final = Faults(
    served_share=1.0, request_lost=0.08, reply_lost=0.1, slow_share=0.1, worker_stop_rate=0.2
)
OWNERS: Final = Faults(
    served_share=1.0, engine_stop_rate=0.6, engine_stop_ms=4_000, engine_crash_rate=0.1
)
CRASHING: Final = Faults(served_share=1.0, engine_crash_rate=0.6, reply_lost=0.05)
MUTE: Final = Faults(served_share=1.0, mute_rate=4.0, mute_ms=12_000)


def _kill_without_attempt(_original: Function) -> Function:
    """Kill whatever attempt of a task is the live one."""

    def changed(self: Any) -> Any:
        for kill in _original(self):
            live = next((ref for ref in self._tasks if ref.task_id == kill.task_id), None)
            yield replace(kill, attempt=kill.attempt + 1 if live is None else live.attempt)

    return changed


def _ack_before_commit(_original: Function) -> Function:
    """Acknowledge completions that are only submitted."""

    async def changed(self: Any, answer: Any) -> None:
        command = self._end(answer.finished)
        self._submit(command).add_done_callback(lambda done: done.cancelled() or done.exception())
        self._content.ack(
            Ack(TaskRef(each.task_id, each.attempt), Reported(TaskState.SUCCEEDED), is_finish=True)
            for each in answer.finished
        )

    return changed


def _seat_without_fence(original: Function) -> Function:
    """Take a seat without raising the session number."""

    def changed(self: Any, worker_id: str, event: Any) -> Any:
        worker = self.workers[worker_id]
        if isinstance(event, SessionOpened) and worker.mode == "served" and worker.session_no:
            decision = original(self, worker_id, event)
            self.workers.put(worker)
            return replace(decision, worker=worker)
        return original(self, worker_id, event)

    return changed


def _clock_extended_by_every_call(_original: Function) -> Function:
    """Take a call for a sign that the last answer has arrived."""

    def changed(self: Any, _call: Any) -> float:
        return float(self._world.now_ms)

    return changed


def mutants() -> list[Mutant]:
    """Return them, each with faults under which it must show."""
    m = Mutant
    return [
        m("kill_without_attempt", ServedContent, "_kills", _kill_without_attempt, SERVED),
        m("ack_before_commit", ServedAnswer, "_finish", _ack_before_commit, CRASHING),
        m("seat_without_fence", WorkingSet, "apply_worker", _seat_without_fence, OWNERS),
        m(
            "clock_extended_by_every_call",
            ServedProcess,
            "extended_from_ms",
            _clock_extended_by_every_call,
            MUTE,
        ),
    ]
