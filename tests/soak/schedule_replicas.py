"""Servers are killed while schedules fire each second: one task per tick, and hardly one late.

On PostgreSQL there are three servers, and one of them is killed every few seconds; there is always
one that lives. On SQLite there is one server, so that ticks which come while none lives are late:
for them only the number counts. The rule of each schedule has a first and a last tick, so that what
must be there at the end is known beforehand.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Final

import msgspec

from tests.bounds import LONG_WORK_S
from tests.polling import eventually
from tests.soak import schedule_client
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, on_both_stores, spotless
from tests.soak.schedule_rows import (
    SECOND_MS,
    FireRow,
    Stored,
    check_tasks,
    check_ticks,
    content,
    load_note,
    quantile,
    read_stored,
    reported,
)
from tests.wire import checker
from tests.wire.journal import merge
from tests.wire.proxy import Proxy
from tests.wire.server import ServerProcess
from tests.wire.stage import Stage

SERVERS: Final = {"postgres": 3, "sqlite": 1}
LATE_MS: Final = 1_000
SLOTS: Final = 100
# Putting the schedules takes less than this, so that no tick comes before its schedule.
AHEAD_MS: Final = 5_000
# What a server missed while it was away fires at a pace, and a moment after it answers.
CATCH_UP_S: Final = 1.0


class Size(msgspec.Struct, frozen=True):
    """How many schedules fire each second, for how long, and how often a server is killed."""

    schedules: int
    seconds: int
    every_s: float
    scale: Scale
    is_small: bool


SIZES: Final = {
    False: Size(50, 180, 5.0, SCALES[False], is_small=False),
    True: Size(5, 6, 2.0, SCALES[True], is_small=True),
}


async def run(small: bool) -> list[Result]:
    """Kill servers on both stores while schedules fire."""
    size = SIZES[small]
    return await on_both_stores(size.scale, lambda stage, name: _Run(stage, size, name).play())


class _Run:
    """The servers, each behind an address that stays, and a worker that knows all of them."""

    def __init__(self, stage: Stage, size: Size, dialect: str) -> None:
        self._stage = stage
        self._size = size
        self._count = SERVERS[dialect]
        self._name = f"schedule replicas, {dialect}"
        self._chance = random.Random(18)
        self._servers: list[ServerProcess] = []
        self._proxies: list[Proxy] = []
        # From when to when no server lived, in milliseconds of the wall clock.
        self._gaps: list[tuple[float, float]] = []
        self._kills = 0
        self._living = set(range(self._count))

    async def play(self) -> list[Result]:
        for _ in range(self._count):
            self._servers.append(await self._stage.server())
        self._proxies = [await self._stage.proxy(each.grpc) for each in self._servers]
        addresses = [each.address for each in self._proxies]
        worker = await self._stage.worker(*addresses, slots=SLOTS)
        ticks = await self._put(addresses)
        await self._kill_until(ticks[-1] / 1_000)
        expected = len(ticks) * self._size.schedules
        # The last ones may come with a server that has just been started.
        await eventually(
            lambda: len(worker.tail.of("end")) >= expected, "all tasks", within_s=LONG_WORK_S
        )
        for each in self._servers:
            await each.process.stop()
        stored = await read_stored(self._stage.store)
        lines = merge([worker.tail])
        judged = checker.check_calm(lines) + checker.check_accepted(lines)
        return [self._judge_ticks(stored, ticks, judged), self._judge_lateness(stored.all_fired)]

    async def _put(self, addresses: list[str]) -> list[int]:
        """Put all schedules and return the ticks that each of them has."""
        begin_ms = (time.time_ns() // 1_000_000 + AHEAD_MS) // SECOND_MS * SECOND_MS
        end_ms = begin_ms + (self._size.seconds - 1) * SECOND_MS
        async with schedule_client.ScheduleClient(addresses[0]) as client:
            for number in range(self._size.schedules):
                spec = content(starts_at_ms=begin_ms, ends_at_ms=end_ms)
                await client.put(f"s{number}", spec)
        return list(range(begin_ms, end_ms + 1, SECOND_MS))

    async def _kill_until(self, ends_at_s: float) -> None:
        """Kill at a pace, but never the last of several; each comes back as soon as it can."""
        async with asyncio.TaskGroup() as group:
            while time.time() + self._size.every_s < ends_at_s:
                await asyncio.sleep(self._size.every_s)
                if len(self._living) >= min(2, self._count):
                    index = self._chance.choice(sorted(self._living))
                    self._living.remove(index)
                    group.create_task(self._restart(index))

    async def _restart(self, index: int) -> None:
        killed_at_ms = time.time() * 1_000
        await self._servers[index].kill()
        self._kills += 1
        self._servers[index] = await self._stage.server()
        self._proxies[index].target = self._servers[index].grpc
        self._living.add(index)
        if self._count == 1:
            self._gaps.append((killed_at_ms, (time.time() + CATCH_UP_S) * 1_000))

    def _judge_ticks(self, stored: Stored, ticks: list[int], judged: list[str]) -> Result:
        size = self._size
        ids = [f"s{number}" for number in range(size.schedules)]
        complaints = [each for key in ids for each in check_ticks(stored, key, ticks)]
        skipped = sum(each.count for key in ids for each in stored.skipped(key))
        if skipped:
            complaints.append(f"{skipped} ticks were skipped")
        return spotless(
            f"{self._name}: {size.schedules} one-second schedules for {size.seconds} s, "
            f"{self._kills} kills of {self._count} servers",
            "one task per tick, each run",
            f"{len(ticks) * size.schedules:,} ticks, {len(stored.all_fired):,} fires, "
            f"{len(stored.task_ids):,} tasks",
            complaints + check_tasks(stored) + judged,
        )

    def _judge_lateness(self, fires: list[FireRow]) -> Result:
        """Judge those that came while a server lived; of a few seconds they say nothing."""
        late = [each.lateness_ms for each in fires if not self._is_in_gap(each)]
        p99_ms = quantile(late, 0.99)
        measured = (
            f"median {quantile(late, 0.5):.0f} ms, p99 {p99_ms:.0f} ms, most {max(late, default=0)}"
            f" ms of {len(late):,} fires; {load_note()}"
        )
        name = f"{self._name}: lateness while a server lives"
        if self._size.is_small:
            return reported(name, measured)
        return Result(name, f"p99 under {LATE_MS} ms", measured, held=p99_ms < LATE_MS)

    def _is_in_gap(self, row: FireRow) -> bool:
        return any(begin_ms <= row.fire_at_ms <= end_ms for begin_ms, end_ms in self._gaps)
