"""The driver of one served worker: calls it each tick, one call at a time, while it has the seat.

Whatever a call raises is logged, counted as a failure, and ends nothing. While the last call failed
the worker keeps what it holds and gets nothing new.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import structlog

from tenure.core.journal.entry import JournalPage
from tenure.core.limits import SEAT_ERROR_BYTES_MAX, SERVED_TICK_SPREAD
from tenure.core.seat.record import SeatNote
from tenure.core.task.effect import Stop
from tenure.core.task.record import Task, TaskState
from tenure.core.worker.record import EndReason, WorkerStatus
from tenure.engine.command import TaskRef
from tenure.engine.seat.call import Call, CallAnswer, Caller, CallFailed, check_answer
from tenure.engine.seat.call_tally import CallTally
from tenure.engine.seat.command import SeatTaken, TakeSeat
from tenure.engine.seat.places import Places
from tenure.engine.seat.served_answer import ServedAnswer
from tenure.engine.seat.served_content import Load, ServedContent
from tenure.engine.worker.command import FailCall
from tenure.errors import TenureError, WorkerInactive
from tenure.store.failure import StoreError
from tenure.store.table import task as task_table
from tenure.store.table import worker as worker_table

if TYPE_CHECKING:
    from tenure.engine.engine import Engine

log = structlog.get_logger("tenure.engine")


class ServedDriver:
    """The sink of a served worker's offer, and the loop that calls the worker."""

    def __init__(self, engine: Engine, caller: Caller, places: Places, tally: CallTally) -> None:
        """Prepare; ``take`` begins when the seat is taken."""
        self._tally = tally
        self._engine = engine
        self._caller = caller
        self._places = places
        self._content = ServedContent(self._holds)
        self._woken = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._is_open = True
        self._is_recalled = False
        self._has_more = False
        self._is_draining = False
        self._drain_at_ms: int | None = None
        self._end: EndReason | None = None
        self._call_no = 0
        self._began_at_mono_ms: int | None = None
        self._failure_count = 0
        self._note: SeatNote | None = None

    async def begin(self, namespace: str, worker_id: str) -> None:
        """Take the seat."""
        command = TakeSeat(namespace=namespace, worker_id=worker_id, sink=self)
        self.take(await self._engine.seats.submit(command))

    def take(self, taken: SeatTaken) -> None:
        """Begin with what was read when the seat was taken."""
        self._taken = taken
        self._answers = ServedAnswer(taken, self._content, self._engine.seats.submit)
        self._content.cancel(taken.cancel)
        if taken.worker.status is WorkerStatus.DRAINING:
            self._is_draining = True
            self._drain_at_ms = taken.worker.drain_at_ms

    @property
    def worker_id(self) -> str:
        """Return whom it drives."""
        return self._taken.worker.id

    @property
    def session_no(self) -> int:
        """Return the session in which it drives the worker."""
        return self._taken.seat.session_no

    @property
    def is_ending(self) -> bool:
        """Return whether its worker is offline, so that only the last call is left."""
        return self._end is not None

    def take_note(self) -> SeatNote | None:
        """Return what it saw last, if that is new."""
        note, self._note = self._note, None
        return note

    # -- What the engine tells the worker

    @property
    def is_open(self) -> bool:
        """Return whether this server drives the worker."""
        return self._is_open

    @property
    def room_bytes(self) -> int:
        """Return how many bytes of payloads fit now."""
        return self._content.room_bytes

    def give(self, tasks: Sequence[Task]) -> None:
        """Carry handed-out tasks with the next call."""
        self._content.give(tasks)
        self._woken.set()

    def cancel(self, refs: Sequence[TaskRef]) -> None:
        """Carry cancels."""
        self._content.cancel(refs)
        self._woken.set()

    def stop(self, stops: Sequence[Stop]) -> None:
        """Carry stops for attempts that have ended."""
        self._content.stop(stops)
        self._woken.set()

    def page(self, ref: TaskRef, page: JournalPage) -> None:
        """A served worker holds no runs."""

    def drain(self) -> None:
        """Say that no more tasks come."""
        self._is_draining = True
        self._woken.set()

    def end(self, reason: EndReason) -> None:
        """Say with a last call that the worker is offline."""
        self._end = reason
        self._woken.set()

    # -- The loop

    async def serve(self) -> None:
        """Call until the worker is offline; a cancelled driver leaves nothing to put back."""
        try:
            while self._end is None:
                await self.call()
                await self._wait()
            await self.call()
        finally:
            self.close()
            await self._caller.forget(self.worker_id)

    def close(self) -> None:
        """End the offer: this server hands out nothing more to the worker."""
        self._is_open = False
        self._engine.end_session(self.worker_id, self.session_no)

    async def _wait(self) -> None:
        """Wait for the next tick, or until there is something to say."""
        settings = self._engine.settings
        jitter = 1 + SERVED_TICK_SPREAD * (2 * self._engine.clock.jitter() - 1)
        if self._has_more and not self._failure_count:
            return
        await self._sleep(settings.served_call_gap_ms, is_woken=False)
        if self._failure_count and self._end is None:
            # It is not called more often because it has much to be told.
            await self._sleep(settings.served_tick_ms * jitter, is_woken=False)
        elif not self._has_news:
            await self._sleep(settings.served_tick_ms * jitter, is_woken=True)

    @property
    def _has_news(self) -> bool:
        return self._content.has_news or self._woken.is_set()

    async def _sleep(self, since_call_ms: float, *, is_woken: bool) -> None:
        """Sleep until so long after the last call began."""
        assert self._began_at_mono_ms is not None
        passed_ms = self._engine.clock.monotonic_ms() - self._began_at_mono_ms
        left_ms = since_call_ms - passed_ms
        if left_ms <= 0:
            return
        try:
            async with asyncio.timeout(left_ms / 1000):
                if is_woken:
                    await self._woken.wait()
                else:
                    await asyncio.Event().wait()
        except TimeoutError:
            pass

    async def call(self) -> None:
        """Call the worker once, and apply its answer; raises nothing but a cancellation."""
        async with self._one_at_a_time:
            await self._call_once()

    async def _call_once(self) -> None:
        began_ms = self._engine.clock.monotonic_ms()
        try:
            if not self._is_recalled:
                await self._recall()
            if self._is_draining and self._drain_at_ms is None:
                await self._read_drain()
            async with self._places.of(is_failing=self._failure_count > 0):
                began_ms = self._begin()
                call, answer = await self._exchange()
            self._note_call(began_ms, "")
            self._tally.called("ok", self._engine.clock.monotonic_ms() - began_ms)
            await self._apply(call, answer)
        except WorkerInactive as over:
            log.info("served.inactive", worker_id=self.worker_id, error=over.message)
            self._end = self._end or EndReason.LEASE_EXPIRED
        except (TenureError, StoreError) as refusal:
            # The store is away, or another server drives the worker: nobody's failure.
            if not self._engine.outage.failed(refusal):
                log.warning("served.not_applied", worker_id=self.worker_id, error=str(refusal))
        except Exception as error:  # noqa: BLE001 (the border to what others have written)
            await self._fail(error, began_ms)

    def _begin(self) -> int:
        """Note when the call begins; what is said from now on waits for the next one."""
        previous, now_ms = self._began_at_mono_ms, self._engine.clock.monotonic_ms()
        settings = self._engine.settings
        if previous is not None and not self._failure_count:
            late_ms = now_ms - previous - settings.served_tick_ms * (1 + SERVED_TICK_SPREAD)
            if late_ms > settings.served_tick_late_ms:
                self._tally.late_count += 1
        self._began_at_mono_ms = now_ms
        self._woken.clear()
        return now_ms

    async def _exchange(self) -> tuple[Call, CallAnswer]:
        load = self._content.next()
        self._has_more = load.has_more
        call = self._call(load)
        try:
            async with asyncio.timeout(self._engine.settings.served_call_ms / 1000):
                answer = await self._caller.call(self._taken.seat, call)
            check_answer(call, answer)
        except TimeoutError:
            waited_ms = self._engine.settings.served_call_ms
            raise CallFailed(f"No answer within {waited_ms} ms.") from None
        except TenureError as refusal:
            raise CallFailed(f"The answer is not valid: {refusal.message}") from refusal
        self._has_more |= answer.has_more
        return call, answer

    def _call(self, load: Load) -> Call:
        self._call_no += 1
        taken, engine = self._taken, self._engine
        drain_in_ms = None
        if self._is_draining and self._drain_at_ms is not None:
            drain_in_ms = max(0, self._drain_at_ms - engine.clock.now_ms())
        return Call(
            worker_id=taken.worker.id,
            namespace=taken.worker.namespace,
            server_id=engine.server_id,
            session_no=taken.seat.session_no,
            call_no=self._call_no,
            answered_no=self._answers.answered_no,
            lease_ms=self._answers.lease_ms,
            interval_ms=engine.settings.served_tick_ms,
            tasks=load.tasks,
            kills=load.kills,
            acks=load.acks,
            drain_in_ms=drain_in_ms,
            end=self._end,
        )

    async def _apply(self, call: Call, answer: CallAnswer) -> None:
        if self._end is not None:
            return
        self._failure_count = 0
        had_room = self.room_bytes
        await self._answers.apply(call, answer)
        window = min(answer.window, self._taken.worker.slots)
        self._engine.set_window(self.worker_id, window)
        if self.room_bytes > had_room:
            self._engine.has_room(self.worker_id)

    async def _fail(self, error: Exception, began_ms: int) -> None:
        """Log a failed call, count it, and hand out nothing until one is answered."""
        self._failure_count += 1
        self._has_more = False
        message = str(error) or type(error).__name__
        log.warning(
            "served.call_failed",
            worker_id=self.worker_id,
            address=self._taken.seat.address,
            failures=self._failure_count,
            error=message,
            exc_info=not isinstance(error, CallFailed),
        )
        self._note_call(began_ms, message)
        self._tally.called("failed", self._engine.clock.monotonic_ms() - began_ms)
        self._engine.set_window(self.worker_id, 0)
        namespace, worker_id = self._taken.worker.namespace, self.worker_id
        try:
            await self._engine.seats.submit(
                FailCall(namespace=namespace, worker_id=worker_id, session_no=self.session_no)
            )
        except WorkerInactive:
            self._end = self._end or EndReason.LEASE_EXPIRED
        except (TenureError, StoreError) as refusal:
            if not self._engine.outage.failed(refusal):
                log.warning("served.not_counted", worker_id=worker_id, error=str(refusal))

    def _note_call(self, began_ms: int, error: str) -> None:
        now_ms = self._engine.clock.monotonic_ms()
        self._note = SeatNote(
            worker_id=self.worker_id,
            call_at_ms=self._engine.clock.now_ms(),
            call_ms=now_ms - began_ms,
            call_error=error.encode()[:SEAT_ERROR_BYTES_MAX].decode(errors="ignore"),
            unconfirmed_count=self._content.unconfirmed_count,
            kill_count=self._content.kill_count,
        )

    # -- What is read

    async def _recall(self) -> None:
        """Read the tasks that were handed to the worker and are in no answer yet."""
        taken = self._taken
        keys = [(taken.worker.namespace, ref.task_id) for ref in taken.unconfirmed]
        wanted = set(taken.unconfirmed)
        if keys:
            for task in await self._engine.store.read(lambda tx: task_table.read_tasks(tx, keys)):
                is_ours = task.state is TaskState.DISPATCHED and task.worker_id == taken.worker.id
                if is_ours and TaskRef(task.id, task.attempt) in wanted:
                    self._content.give([task])
        self._is_recalled = True

    async def _read_drain(self) -> None:
        worker_id = self.worker_id
        found = await self._engine.store.read(lambda tx: worker_table.read_workers(tx, [worker_id]))
        for worker in found:
            self._drain_at_ms = worker.drain_at_ms

    def _holds(self, ref: TaskRef) -> bool:
        return self._engine.session_holds(self.worker_id, self.session_no, ref)
