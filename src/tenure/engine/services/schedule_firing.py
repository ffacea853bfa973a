"""Fires schedules that are due, and notes how what they started has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from tenure.core.limits import FIRE_TRANSACTIONS_MAX, SWEPT_FIRES_MAX, WOKEN_SCHEDULES_MAX
from tenure.engine.schedule import command as c
from tenure.engine.service import Report
from tenure.errors import InvalidArgument, TenureError, Unavailable
from tenure.store.table import fire as fire_table
from tenure.store.table import schedule as schedule_table
from tenure.store.table.child import LOWEST_ID
from tenure.store.table.fire import OpenFire, ScheduleKey

if TYPE_CHECKING:
    from tenure.engine.engine import Engine
    from tenure.store.transaction import Tx

log = structlog.get_logger("tenure.engine")
# A due row that another server looks at is not read again without a pause.
PAUSE_MS: Final = 20
# After a round that failed; a tick is not to wait for the interval.
RETRY_MS: Final = 500
_BEGIN: Final = ("", LOWEST_ID)


class ScheduleFiring:
    """Looks at due schedules in bounded rounds; wakes with its alarm."""

    name = "schedule_firing"

    def __init__(self) -> None:
        """Sweep from the start."""
        self._swept = _BEGIN
        self._sweep_at_mono_ms = 0

    def interval_ms(self, engine: Engine) -> int:
        """Return the fallback interval for what other servers have written."""
        return engine.settings.scheduler_interval_ms

    async def run_once(self, engine: Engine) -> Report:
        """Note ends, fire what is due, and set the alarm for what comes next."""
        alarm = engine.alarms[self.name]
        alarm.clear()
        began_mono_ms = engine.clock.monotonic_ms()
        try:
            has_more = await self._settle(engine)
            has_more |= await self._wake(engine)
            fired = await self._fire(engine)
            await self._sweep(engine)
            next_ms = await engine.store.read(_next_due)
        except Exception:
            alarm.set(RETRY_MS, engine.clock.monotonic_ms())
            raise
        mono_ms = engine.clock.monotonic_ms()
        if fired.has_more or has_more:
            # Others use the lane for as long as this round has.
            alarm.set(max(mono_ms - began_mono_ms, 1), mono_ms)
        elif next_ms is not None:
            alarm.set(max(next_ms, PAUSE_MS), mono_ms)
        return Report(fired.count)

    async def _settle(self, engine: Engine) -> bool:
        ended = engine.schedule_news.take_ended()
        if ended:
            try:
                await engine.submit(c.SettleFires(items=ended))
            except TenureError:
                engine.schedule_news.add_ended(ended)
                raise
        return engine.schedule_news.has_ended

    async def _wake(self, engine: Engine) -> bool:
        """Let some schedules of a namespace look again that was enabled here."""
        enabled = engine.schedule_news.next_enabled()
        if enabled is None:
            return False
        namespace, after_id = enabled
        last_id = await engine.submit(
            c.WakeSchedules(namespace=namespace, after_id=after_id, amount=WOKEN_SCHEDULES_MAX)
        )
        engine.schedule_news.note_woken(namespace, last_id)
        return engine.schedule_news.next_enabled() is not None

    async def _fire(self, engine: Engine) -> c.FireRound:
        """Fire what is due by some transactions; other commands come in between."""
        settings = engine.settings
        left, count = settings.scheduler_fires_per_round, 0
        round_ = c.FireRound(has_more=True)
        for _ in range(FIRE_TRANSACTIONS_MAX):
            amount = settings.scheduler_batch_size
            try:
                command = c.FireSchedules(amount=amount, fires_max=left)
                round_ = await engine.submit(command)
            except (InvalidArgument, Unavailable) as error:
                if not _is_refused(error):
                    raise
                round_ = await self._fire_parts(engine, amount)
            count += round_.count
            left -= round_.fire_count
            if not round_.has_more or left <= 0:
                break
        return c.FireRound(count, settings.scheduler_fires_per_round - left, round_.has_more)

    async def _fire_parts(self, engine: Engine, amount: int) -> c.FireRound:
        """Find the schedule that the database refuses; the others are not affected."""

        async def body(tx: Tx) -> list[ScheduleKey]:
            return await schedule_table.read_due(tx, now_ms=await tx.now_ms(), amount=amount)

        due = await engine.store.read(body)
        waiting, rounds = [tuple(due)] if due else [], []
        while waiting:
            keys = waiting.pop()
            left = engine.settings.scheduler_fires_per_round
            command = c.FireSchedules(amount=len(keys), fires_max=left, only=keys)
            try:
                rounds.append(await engine.submit(command))
            except (InvalidArgument, Unavailable) as error:
                if not _is_refused(error):
                    raise
                middle = len(keys) // 2
                if middle:
                    waiting += [keys[middle:], keys[:middle]]
                else:
                    await self._break(engine, keys[0], error)
        count, fired = sum(each.count for each in rounds), sum(each.fire_count for each in rounds)
        return c.FireRound(count, fired, has_more=len(due) >= amount)

    async def _break(self, engine: Engine, key: ScheduleKey, error: TenureError) -> None:
        """Let a schedule fire no more that stopped a round."""
        namespace, schedule_id = key
        log.error(
            "schedule.refused", namespace=namespace, schedule=schedule_id, error=error.message
        )
        await engine.submit(
            c.BreakSchedule(namespace=namespace, schedule_id=schedule_id, error=error.message)
        )

    async def _sweep(self, engine: Engine) -> None:
        """Find ends that no effect has told of: a window of the open fires at each interval."""
        mono_ms = engine.clock.monotonic_ms()
        if mono_ms < self._sweep_at_mono_ms:
            return
        self._sweep_at_mono_ms = mono_ms + engine.settings.scheduler_interval_ms
        after = self._swept

        async def body(tx: Tx) -> list[OpenFire]:
            return await fire_table.sweep_fires(tx, after=after, amount=SWEPT_FIRES_MAX)

        found = await engine.store.read(body)
        is_end = len(found) < SWEPT_FIRES_MAX
        self._swept = _BEGIN if is_end else (found[-1].namespace, found[-1].task_id)
        engine.schedule_news.add_ended(
            c.EndedFire(each.namespace, each.schedule_id, each.task_id)
            for each in found
            if not each.is_live
        )
        await self._settle(engine)


def _is_refused(error: TenureError) -> bool:
    """Tell whether it is what a transaction has written that the database does not take."""
    return isinstance(error, InvalidArgument) or error.fields.get("reason") == "internal"


async def _next_due(tx: Tx) -> int | None:
    """Return how long it is until the next schedule is due."""
    due_at_ms = await schedule_table.next_due_ms(tx)
    return None if due_at_ms is None else due_at_ms - await tx.now_ms()
