"""What a worker holds: attempts, from their delivery to the acknowledgement of their end.

The activities do nothing but take time: ``{"sleep_ms": 200}``, or ``{"sleep_ms": [60000, 50]}`` for
the first and all later attempts. What they would change in the world stands in the journal.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from tenure.v1.error_pb2 import ErrorDetail
from tenure.v1.task_pb2 import (
    FINISH_KIND_CANCELLED,
    FINISH_KIND_RELEASED,
    FINISH_KIND_SUCCEEDED,
    AssignedTask,
    FinishKind,
    TaskFinish,
    TaskRef,
)
from tests.wire.call import is_retryable
from tests.wire.journal import RunJournal

Ref = tuple[str, int]

CONFIRM_AFTER_S: Final = 0.5
AGAIN_S: Final = 0.2


class Work(msgspec.Struct):
    """The input of an activity."""

    sleep_ms: int | list[int] = 0

    def seconds(self, attempt: int) -> float:
        each = self.sleep_ms if isinstance(self.sleep_ms, list) else [self.sleep_ms]
        return each[min(attempt, len(each)) - 1] / 1_000


class Held:
    """One attempt that this worker has."""

    def __init__(self, task: AssignedTask) -> None:
        self.ref: Ref = (task.task_id, task.attempt)
        work = msgspec.json.decode(task.input, type=Work) if task.input else Work()
        self.seconds = work.seconds(task.attempt)
        self.ends_at_s: float | None = None
        self.is_confirmed = False
        self.finish: TaskFinish | None = None
        self.is_sent = False
        self.timers: list[asyncio.TimerHandle] = []

    def clear_timers(self) -> None:
        for timer in self.timers:
            timer.cancel()
        self.timers.clear()


class HeldByWorker:
    """All attempts of one incarnation."""

    def __init__(self, worker_id: str, journal: RunJournal, may_start: Callable[[], bool]) -> None:
        self.worker_id = worker_id
        self.held: dict[Ref, Held] = {}
        self.news = asyncio.Event()
        self.is_draining = False
        self.completed_count = 0
        self._unconfirmed: set[Ref] = set()
        self._journal = journal
        self._may_start = may_start

    def take(self, tasks: Iterable[AssignedTask]) -> None:
        """Begin with what was handed out; while draining it goes back."""
        for task in tasks:
            held = Held(task)
            if held.ref in self.held:
                continue
            self.held[held.ref] = held
            if self.is_draining:
                self._finish(held, FINISH_KIND_RELEASED)
        self.start_waiting()

    def start_waiting(self) -> None:
        """Start what has not begun, unless the lease seems to be over."""
        for held in self.held.values():
            if held.ends_at_s is None and held.finish is None and self._may_start():
                self._start(held)

    def _start(self, held: Held) -> None:
        loop = asyncio.get_running_loop()
        held.ends_at_s = time.monotonic() + held.seconds
        self._journal.write("start", self.worker_id, held.ref)
        held.timers = [
            loop.call_later(held.seconds, self._end, held),
            loop.call_later(CONFIRM_AFTER_S, self.confirm_again, held.ref),
        ]

    def _end(self, held: Held) -> None:
        self._journal.write("end", self.worker_id, held.ref)
        self.completed_count += 1
        self._finish(held, FINISH_KIND_SUCCEEDED)

    def _finish(self, held: Held, kind: FinishKind.ValueType) -> None:
        held.clear_timers()
        self._unconfirmed.discard(held.ref)
        is_success = kind == FINISH_KIND_SUCCEEDED
        output = f"{held.ref[0]}:{held.ref[1]}:{self.worker_id}".encode() if is_success else None
        held.finish = TaskFinish(task_id=held.ref[0], attempt=held.ref[1], kind=kind, output=output)
        self.news.set()

    def stop(self, refs: Iterable[TaskRef]) -> None:
        """Abort attempts that are not this worker's any more; what is finished is reported."""
        for ref in refs:
            held = self.held.get((ref.task_id, ref.attempt))
            if held is not None and held.finish is None:
                self._drop(held, "stopped")

    def cancel(self, refs: Iterable[Ref]) -> None:
        """Cancel attempts as asked."""
        for ref in refs:
            held = self.held.get(ref)
            if held is not None and held.finish is None:
                self._journal.write("cancelled", self.worker_id, ref)
                self._finish(held, FINISH_KIND_CANCELLED)

    def hand_back(self) -> None:
        """Give back what is not finished."""
        for held in self.held.values():
            if held.finish is None:
                self._finish(held, FINISH_KIND_RELEASED)

    def _drop(self, held: Held, event: str, text: str = "") -> None:
        held.clear_timers()
        self._unconfirmed.discard(held.ref)
        del self.held[held.ref]
        self._journal.write(event, self.worker_id, held.ref, text)
        self.news.set()

    # -- Reports -------------------------------------------------------------------------------

    def refs(self) -> list[TaskRef]:
        return [TaskRef(task_id=each[0], attempt=each[1]) for each in self.held]

    def confirm_again(self, ref: Ref) -> None:
        """Tell the server, with the next report, that this attempt is really held."""
        held = self.held.get(ref)
        if held is not None and held.finish is None:
            self._unconfirmed.add(ref)
            self.news.set()

    def take_confirmations(self) -> list[TaskRef]:
        refs, self._unconfirmed = self._unconfirmed, set()
        return [TaskRef(task_id=each[0], attempt=each[1]) for each in refs]

    def take_finished(self) -> list[TaskFinish]:
        """Return the ends that were not sent yet; each is kept until it is acknowledged."""
        found = []
        for held in self.held.values():
            if held.finish is not None and not held.is_sent:
                held.is_sent = True
                found.append(held.finish)
        return found

    def send_again(self, refs: Iterable[Ref] | None = None) -> None:
        """Nobody has answered: send the ends again."""
        for ref in list(self.held) if refs is None else refs:
            if ref in self.held:
                self.held[ref].is_sent = False
        self.news.set()

    def _later(self, ref: Ref) -> None:
        asyncio.get_running_loop().call_later(AGAIN_S, self.send_again, [ref])

    def start_refused(self, ref: Ref, error: ErrorDetail) -> None:
        """Abort an attempt whose confirmation was refused."""
        held = self.held.get(ref)
        if held is None or held.finish is not None:
            return
        if is_retryable(error):
            asyncio.get_running_loop().call_later(AGAIN_S, self.confirm_again, ref)
        else:
            self._drop(held, "stopped", error.code)

    def finish_answered(self, ref: Ref, error: ErrorDetail | None) -> None:
        """Forget an attempt whose end was acknowledged or refused for good."""
        held = self.held.get(ref)
        if held is None or held.finish is None:
            return
        if is_retryable(error):
            self._later(ref)
        elif error is not None:
            self._drop(held, "refused", error.code)
        elif held.finish.kind == FINISH_KIND_SUCCEEDED:
            self._drop(held, "accepted", held.finish.output.decode())
        else:
            self._drop(held, "handed_back", FinishKind.Name(held.finish.kind))

    def abort(self) -> list[TaskFinish]:
        """Stop everything; return the ends that nobody has acknowledged."""
        now_s = time.monotonic()
        for held in list(self.held.values()):
            if held.finish is None:
                # What should have ended while the process stood still has ended.
                if held.ends_at_s is not None and held.ends_at_s <= now_s:
                    self._end(held)
                else:
                    self._drop(held, "stopped", "inactive")
        return [held.finish for held in self.held.values() if held.finish is not None]
