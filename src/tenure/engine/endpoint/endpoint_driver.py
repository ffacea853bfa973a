"""The driver of one endpoint: the sink of its offer. What it is given becomes one POST each.

The window of the offer says how many attempts the endpoint may have: none while it is paused, busy
or held, one more to probe it, else its concurrency. A POST that was begun is never sent again: if
this server loses the seat, the next owner ends the attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import structlog

from tenure.core.endpoint import hold
from tenure.core.endpoint.record import Endpoint
from tenure.core.endpoint.verdict import Delivery, Verdict
from tenure.core.journal.entry import JournalPage
from tenure.core.limits import ENDPOINT_ERROR_BYTES_MAX, STREAM_BYTES_MAX
from tenure.core.seat.record import SeatNote
from tenure.core.task.effect import Stop
from tenure.core.task.record import Task
from tenure.core.worker.record import EndReason
from tenure.engine.command import TaskRef
from tenure.engine.endpoint.command import EndpointTaken, ReportDelivery, TakeEndpoint
from tenure.engine.endpoint.poster import Poster
from tenure.engine.endpoint.tally import DeliveryTally
from tenure.errors import TenureError

if TYPE_CHECKING:
    from tenure.engine.engine import Engine

log = structlog.get_logger("tenure.engine")
_REPORT_TRIES = 3
_AGAIN_S = 0.1


class EndpointDriver:
    """Pushes what one endpoint is handed, while this server has its seat."""

    def __init__(self, engine: Engine, poster: Poster, tally: DeliveryTally) -> None:
        """Prepare; ``begin`` takes the seat."""
        self._engine = engine
        self._poster = poster
        self._tally = tally
        self._posting: dict[TaskRef, asyncio.Task[None]] = {}
        self._is_open = True
        self._end = asyncio.Event()
        self._opening: asyncio.TimerHandle | None = None
        self._note: SeatNote | None = None

    async def begin(self, namespace: str, worker_id: str) -> None:
        """Take the seat, or take it again after the endpoint was changed."""
        taken: EndpointTaken = await self._engine.submit(
            TakeEndpoint(
                namespace=namespace,
                worker_id=worker_id,
                sink=self,
                posting=frozenset(self._posting),
            )
        )
        self._session_no = taken.seat.session_no
        self._ahead_ms = taken.now_ms - self._engine.clock.monotonic_ms()
        self._endpoint = taken.endpoint
        self._fit_window()

    async def renew(self) -> None:
        """Go on with an endpoint that was changed, or whose session was raised."""
        await self.begin(self._endpoint.namespace, self.worker_id)

    @property
    def worker_id(self) -> str:
        """Return whom it drives."""
        return self._endpoint.id

    @property
    def session_no(self) -> int:
        """Return the session in which it drives the endpoint."""
        return self._session_no

    @property
    def is_ending(self) -> bool:
        """Return whether the endpoint is gone."""
        return self._end.is_set()

    @property
    def is_held(self) -> bool:
        """Return whether nothing is sent now: it is paused, busy, or has failed too often."""
        return not hold.window(self._endpoint, held_count=0, now_ms=self._now_ms())

    def take_note(self) -> SeatNote | None:
        """Return what it saw last, if that is new."""
        note, self._note = self._note, None
        return note

    # -- What the engine tells the endpoint

    @property
    def is_open(self) -> bool:
        """Return whether this server drives the endpoint."""
        return self._is_open

    @property
    def room_bytes(self) -> int:
        """Return how many bytes of payloads fit now; each POST has its own connection."""
        return STREAM_BYTES_MAX

    def give(self, tasks: Sequence[Task]) -> None:
        """Push handed-out attempts, each by a POST of its own."""
        for task in tasks:
            ref = TaskRef(task.id, task.attempt)
            posting = asyncio.get_running_loop().create_task(
                self._deliver(ref, task), name=f"delivery {task.id}"
            )
            self._posting[ref] = posting
            posting.add_done_callback(lambda _, ref=ref: self._posting.pop(ref, None))  # type: ignore[misc]  # the default binds this attempt
        self._fit_window()

    def cancel(self, refs: Sequence[TaskRef]) -> None:
        """Nothing is pushed: the next heartbeat carries a cancel."""

    def stop(self, stops: Sequence[Stop]) -> None:
        """Nothing is pushed: the next callback is refused."""

    def page(self, ref: TaskRef, page: JournalPage) -> None:
        """An endpoint holds no runs."""

    def drain(self) -> None:
        """Nothing more comes; what is held goes on under its tokens."""

    def end(self, reason: EndReason) -> None:
        """Stop: the worker row has ended."""
        del reason
        self._end.set()

    # -- Deliveries

    async def serve(self) -> None:
        """Own the deliveries until the endpoint is gone or this server loses the seat."""
        try:
            await self._end.wait()
        finally:
            self.close()
            postings = list(self._posting.values())
            for posting in postings:
                posting.cancel()
            await asyncio.gather(*postings, return_exceptions=True)

    def close(self) -> None:
        """End the offer: this server hands out nothing more to the endpoint."""
        self._is_open = False
        if self._opening is not None:
            self._opening.cancel()
        self._engine.end_session(self.worker_id, self._session_no)

    async def _deliver(self, ref: TaskRef, task: Task) -> None:
        try:
            delivery = await self._poster.post(self._endpoint, task)
        except Exception:
            log.exception("delivery.failed", task_id=ref.task_id, attempt=ref.attempt)
            delivery = Delivery(verdict=Verdict.FAILED, error="The envelope could not be made.")
        self._tally.note(delivery)
        if delivery.verdict is not Verdict.ACCEPTED:
            log.info(
                "delivery.not_accepted",
                endpoint=self._endpoint.name,
                namespace=self._endpoint.namespace,
                task_id=ref.task_id,
                attempt=ref.attempt,
                verdict=delivery.verdict.value,
                error=delivery.error,
            )
        self._see(delivery)
        counts = self._counts(delivery)
        if counts:
            # Before the row has it: the batch that puts the attempt back hands out again.
            self._endpoint = hold.after(self._endpoint, delivery, self._now_ms())
            self._fit_window()
        await self._report(ref, delivery, counts=counts)

    async def _report(self, ref: TaskRef, delivery: Delivery, *, counts: bool) -> None:
        """Store the result; if it is lost, the delivery check makes up for it."""
        command = ReportDelivery(
            namespace=self._endpoint.namespace,
            worker_id=self.worker_id,
            item=ref,
            delivery=delivery,
            counts=counts,
        )
        for again in range(_REPORT_TRIES):
            try:
                delivered = await self._engine.submit(command)
            except TenureError as error:
                log.info("delivery.not_stored", task_id=ref.task_id, error=error.code)
                await asyncio.sleep(_AGAIN_S * (again + 1))
                continue
            if delivered.endpoint is not None:
                self._learn(delivered.endpoint)
            return

    def _counts(self, delivery: Delivery) -> bool:
        """Return whether a result changes the row of the endpoint; most do not."""
        if delivery.verdict in {Verdict.ACCEPTED, Verdict.REFUSED}:
            return bool(self._endpoint.failure_count or self._endpoint.held_until_ms)
        return True

    def _learn(self, endpoint: Endpoint) -> None:
        """Take in how an endpoint stands, unless something later is known."""
        if endpoint.version >= self._endpoint.version:
            self._endpoint = endpoint
        self._fit_window()

    def _see(self, delivery: Delivery) -> None:
        self._note = SeatNote(
            worker_id=self.worker_id,
            call_at_ms=self._now_ms(),
            call_ms=delivery.took_ms,
            call_error=delivery.error[:ENDPOINT_ERROR_BYTES_MAX],
            unconfirmed_count=len(self._posting),
        )

    def _now_ms(self) -> int:
        """Return the store's time, as known without reading it."""
        return self._engine.clock.monotonic_ms() + self._ahead_ms

    def _fit_window(self) -> None:
        """Let the offer have what the endpoint may have now, and look again when a hold ends."""
        if not self._is_open:
            return
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None
        now_ms = self._now_ms()
        held_count = self._engine.held_count(self.worker_id)
        window = hold.window(self._endpoint, held_count=held_count, now_ms=now_ms)
        if self._is_probing and window:
            window = min(window, held_count if self._posting else held_count + 1)
        self._engine.set_window(self.worker_id, window)
        if self._endpoint.is_held(now_ms) and self._endpoint.pause is None:
            left_s = (self._endpoint.held_until_ms - now_ms) / 1000
            loop = asyncio.get_running_loop()
            self._opening = loop.call_later(left_s, self._fit_window)

    @property
    def _is_probing(self) -> bool:
        return hold.is_probing(self._endpoint)
