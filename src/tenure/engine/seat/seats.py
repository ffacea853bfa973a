"""The seats of this server: which workers it drives, each by one task of one group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from tenure.core.limits import SEAT_NOTE_MS
from tenure.core.seat import share
from tenure.core.seat.record import Seat, SeatNote
from tenure.core.seat.share import Survey
from tenure.core.worker.record import WorkerMode
from tenure.engine.command import AnyCommand
from tenure.engine.endpoint.endpoint_driver import EndpointDriver
from tenure.engine.endpoint.poster import Poster
from tenure.engine.endpoint.tally import DeliveryTally
from tenure.engine.seat.call import Caller
from tenure.engine.seat.call_tally import CallTally
from tenure.engine.seat.places import Places
from tenure.engine.seat.served_driver import ServedDriver
from tenure.errors import TenureError
from tenure.store.failure import StoreError
from tenure.store.table import seat as seat_table
from tenure.store.transaction import LaneName, Tx

if TYPE_CHECKING:
    from tenure.engine.engine import Engine

log = structlog.get_logger("tenure.engine")
Submit = Callable[[AnyCommand], "asyncio.Future[Any]"]


class Driver(Protocol):
    """Drives one worker while this server has its seat."""

    @property
    def worker_id(self) -> str:
        """Return whom it drives."""
        ...

    @property
    def session_no(self) -> int:
        """Return the session in which it drives."""
        ...

    @property
    def is_ending(self) -> bool:
        """Return whether its worker is offline, so that only the last call is left."""
        ...

    async def begin(self, namespace: str, worker_id: str) -> None:
        """Take the seat."""
        ...

    async def serve(self) -> None:
        """Drive until the worker is offline."""
        ...

    def close(self) -> None:
        """End the offer."""
        ...

    def take_note(self) -> SeatNote | None:
        """Return what it saw last, if that is new."""
        ...


class Seats:
    """Takes free seats up to a fair share, gives surplus back, and runs the drivers."""

    def __init__(self, engine: Engine) -> None:
        """Start without seats; without a caller none is taken."""
        self._engine = engine
        self.submit: Submit = engine.submit
        self._makers: dict[WorkerMode, Callable[[], Driver]] = {}
        self._places = Places()
        self.tally = CallTally()
        self.deliveries = DeliveryTally()
        self.poster: Poster | None = None
        self._drivers: dict[str, Driver] = {}
        self._modes: dict[str, WorkerMode] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._noted_at_mono_ms = 0

    def __len__(self) -> int:
        """Return how many workers this server drives."""
        return len(self._drivers)

    @property
    def held_count(self) -> int:
        """Return how many endpoints of this server get nothing now, whatever waits for them."""
        drivers = self._drivers.values()
        return sum(isinstance(each, EndpointDriver) and each.is_held for each in drivers)

    def open(self, caller: Caller) -> None:
        """Drive served workers from now on, which are reached by ``caller``."""
        self._makers[WorkerMode.SERVED] = lambda: ServedDriver(
            self._engine, caller, self._places, self.tally
        )

    def open_endpoints(self, poster: Poster) -> None:
        """Drive endpoints from now on, which are reached by ``poster``."""
        self.poster = poster
        self._makers[WorkerMode.CALLBACK] = lambda: EndpointDriver(
            self._engine, poster, self.deliveries
        )

    def driver_of(self, worker_id: str) -> Driver | None:
        """Return the driver of a worker, if this server has its seat."""
        return self._drivers.get(worker_id)

    async def serve(self) -> None:
        """Own the drivers until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await asyncio.Event().wait()
            finally:
                self._group = None

    # -- One round

    async def round(self) -> int:
        """Take and give back seats; return how many seats have another owner or driver now."""
        count = 0
        for mode in tuple(self._makers):
            count += await self._round_of(mode)
        await self._note()
        return count

    async def _round_of(self, mode: WorkerMode) -> int:
        engine = self._engine
        server_id = engine.server_id

        async def body(tx: Tx) -> tuple[Survey, dict[str, int], list[Seat]]:
            now_ms = await tx.now_ms()
            await seat_table.touch_driver(tx, server_id, now_ms=now_ms)
            look = seat_table.Look(now_ms, now_ms - engine.settings.seat_stale_ms)
            survey = await seat_table.survey_seats(tx, mode, server_id, look)
            own = await seat_table.list_own_seats(tx, server_id)
            amount = share.wanted_count(survey)
            free = []
            if amount:
                free = await seat_table.find_free_seats(tx, mode, look, amount=amount)
            return survey, own, free

        survey, own, free = await engine.store.transaction(body, LaneName.SERVICE)
        count = await self._leave_lost(mode, own)
        surplus = self._surplus(mode, survey)
        count += await self._give(surplus)
        missing = [each for each in own if each not in self._drivers and each not in surplus]
        count += await self._take(mode, free, missing)
        return count

    def _of(self, mode: WorkerMode) -> dict[str, Driver]:
        return {each: driver for each, driver in self._drivers.items() if self._modes[each] is mode}

    async def _leave_lost(self, mode: WorkerMode, own: dict[str, int]) -> int:
        """Stop the drivers of seats that are not this server's any more."""
        lost = []
        for worker_id, driver in self._of(mode).items():
            if own.get(worker_id) == driver.session_no or driver.is_ending:
                continue
            if worker_id in own and isinstance(driver, EndpointDriver):
                # The endpoint was changed, and is this server's as before.
                await self._renew(driver)
            else:
                lost.append(worker_id)
        await self._stop(lost)
        return len(lost)

    async def _renew(self, driver: EndpointDriver) -> None:
        try:
            await driver.renew()
        except (TenureError, StoreError) as refusal:
            # The next round sees who has it now.
            log.debug("seats.not_renewed", worker_id=driver.worker_id, error=str(refusal))

    def _surplus(self, mode: WorkerMode, survey: Survey) -> list[str]:
        amount = share.surplus_count(survey)
        mine = list(self._of(mode))
        # Those that were taken last: the others stay where they are.
        return mine[len(mine) - amount :] if amount else []

    async def _give(self, worker_ids: list[str]) -> int:
        if not worker_ids:
            return 0
        await self._stop(worker_ids)
        server_id = self._engine.server_id
        await self._engine.store.transaction(
            lambda tx: seat_table.give_seats(tx, server_id, worker_ids), LaneName.SERVICE
        )
        log.info("seats.given", count=len(worker_ids))
        return len(worker_ids)

    async def _take(self, mode: WorkerMode, free: Iterable[Seat], missing: list[str]) -> int:
        """Take seats, also own ones without a driver: the answer of a former try was lost."""
        wanted = {each.worker_id: each.namespace for each in free}
        if missing:
            found = await self._engine.store.read(lambda tx: seat_table.read_seats(tx, missing))
            wanted |= {
                each.worker_id: each.namespace
                for each in found
                if each.is_open and each.mode is mode
            }
        taken = await asyncio.gather(*(self._take_one(mode, *each) for each in wanted.items()))
        if any(taken):
            log.info("seats.taken", count=sum(taken))
        return sum(taken)

    async def _take_one(self, mode: WorkerMode, worker_id: str, namespace: str) -> bool:
        driver = self._makers[mode]()
        try:
            await driver.begin(namespace, worker_id)
        except (TenureError, StoreError) as refusal:
            log.debug("seats.not_taken", worker_id=worker_id, error=str(refusal))
            return False
        return self._begin(mode, worker_id, driver)

    def _begin(self, mode: WorkerMode, worker_id: str, driver: Driver) -> bool:
        """Begin to drive, unless the server stops."""
        if self._group is None or mode not in self._makers:
            driver.close()
            return False
        earlier = self._tasks.get(worker_id)
        if earlier is not None:
            earlier.cancel()
        self._drivers[worker_id] = driver
        self._modes[worker_id] = mode
        task = self._group.create_task(self._drive(driver), name=f"seat {worker_id}")
        self._tasks[worker_id] = task
        return True

    async def _drive(self, driver: Driver) -> None:
        try:
            await driver.serve()
        except Exception:
            # One driver never ends the others; the next round takes the seat again.
            log.exception("seat.failed", worker_id=driver.worker_id)
        finally:
            if self._drivers.get(driver.worker_id) is driver:
                del self._drivers[driver.worker_id], self._tasks[driver.worker_id]

    async def _stop(self, worker_ids: Iterable[str]) -> None:
        tasks = [self._tasks[each] for each in worker_ids if each in self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _note(self) -> None:
        """Write what the drivers saw, some seconds after the last time."""
        mono_ms = self._engine.clock.monotonic_ms()
        if mono_ms - self._noted_at_mono_ms < SEAT_NOTE_MS:
            return
        self._noted_at_mono_ms = mono_ms
        notes = [note for each in self._drivers.values() if (note := each.take_note())]
        if notes:
            server_id = self._engine.server_id
            await self._engine.store.transaction(
                lambda tx: seat_table.note_seats(tx, server_id, notes), LaneName.SERVICE
            )

    async def leave(self) -> None:
        """Stop all drivers and give back all seats: the server stops."""
        if not self._makers:
            return
        self._makers.clear()
        await self._stop(list(self._tasks))
        server_id = self._engine.server_id
        try:
            await self._engine.store.transaction(
                lambda tx: seat_table.leave_seats(tx, server_id), LaneName.SERVICE
            )
        except StoreError as error:
            # Then others take them when this server is stale.
            log.warning("seats.not_given", error=str(error))
