"""A server that was away while ticks came: the newest fire in order, the rest is in ranges.

Nobody waits for hours. A real server makes the schema and puts the schedules, and is stopped; then
the mark in each stored row (``fired_until_ms``, all that says how far a schedule has come) is set
back, together with the time at which it is due. To the next server process this is a downtime: it
reads the same row after a real one. Rules with a last tick make the numbers exact; the one of a
whole day goes on, as schedules do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from tenure.core.schedule.record import Schedule
from tests.bounds import LONG_WORK_S
from tests.polling import eventually
from tests.soak import schedule_client
from tests.soak.process_usage import usage_of
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
    read_stored,
    reported,
    rewrite,
)
from tests.wire.server import ServerProcess
from tests.wire.stage import Stage

# The rules with a last tick end so much later than they are put: a schedule without a tick in the
# future is refused.
AHEAD_S: Final = 5
FIRST_S: Final = 10.0
CPU_S: Final = 1.0
# Counts of ranges are exact up to here.
COUNTED_MAX: Final = 10_000
COUNT, NONE, WINDOW, DAY = "count", "none", "window", "day"


class Size(msgspec.Struct, frozen=True):
    """How many ticks are missed, how many of them fire, and for how long a server is watched."""

    missed: int
    most: int
    window_s: int
    day: int
    day_most: int
    watched_s: float
    scale: Scale
    is_small: bool


SIZES: Final = {
    False: Size(300, 100, 60, 86_400, 100, 20.0, SCALES[False], is_small=False),
    True: Size(40, 12, 30, 86_400, 12, 1.5, SCALES[True], is_small=True),
}


async def run(small: bool) -> list[Result]:
    """Miss ticks on both stores."""
    size = SIZES[small]
    return await on_both_stores(size.scale, lambda stage, name: _Outage(stage, size, name).play())


class _Outage:
    """Servers one after the other, and four schedules that miss ticks between them."""

    def __init__(self, stage: Stage, size: Size, dialect: str) -> None:
        self._stage = stage
        self._size = size
        self._name = f"schedule outage, {dialect}"

    async def play(self) -> list[Result]:
        results = await self._miss_some()
        idle_s = await self._cost_of_a_start()
        return results + await self._miss_a_day(idle_s)

    async def _miss_some(self) -> list[Result]:
        """Miss the ticks of three rules that end."""
        size = self._size
        server = await self._stage.server()
        end_ms = (time.time_ns() // 1_000_000 // SECOND_MS + AHEAD_S) * SECOND_MS
        async with schedule_client.ScheduleClient(server.grpc) as client:
            for name, most, window_ms in (
                (COUNT, size.most, None),
                (NONE, 0, None),
                (WINDOW, 1_000, size.window_s * 1_000),
            ):
                # The first tick is the last one: nothing fires before the mark is set back.
                spec = content(starts_at_ms=end_ms, ends_at_ms=end_ms, max_catchup=most)
                await client.put(name, replace(spec, catchup_window_ms=window_ms))
        await server.process.stop()
        mark_ms = end_ms - size.missed * SECOND_MS
        count = await rewrite(self._stage.store, lambda each: _missed(each, mark_ms))
        assert count == 3, f"{count} schedules wait for their tick"
        await asyncio.sleep(max(0.0, end_ms / 1_000 + 0.1 - time.time()))
        server = await self._stage.server()
        ticks = list(range(mark_ms + SECOND_MS, end_ms + 1, SECOND_MS))
        stored = await self._wait_for(
            lambda found: all(_last_of(found, name) == end_ms for name in (COUNT, NONE, WINDOW))
        )
        await server.process.stop()
        return [
            self._judge_count(stored, ticks),
            self._judge_none(stored, ticks),
            self._judge_window(stored, ticks),
        ]

    async def _cost_of_a_start(self) -> float:
        """Return the CPU time of a server that starts and has nothing to catch up."""
        server = await self._stage.server()
        used_s = await self._cpu_after(server)
        await server.process.stop()
        return used_s

    async def _miss_a_day(self, idle_s: float) -> list[Result]:
        """Miss a day of a rule that goes on."""
        size = self._size
        server = await self._stage.server()
        spec = content(max_catchup=size.day_most)
        async with schedule_client.ScheduleClient(server.grpc) as client:
            await client.put(DAY, spec)
        await server.process.stop()
        now_ms = time.time_ns() // 1_000_000 // SECOND_MS * SECOND_MS
        mark_ms = now_ms - size.day * SECOND_MS
        before = len((await read_stored(self._stage.store)).of(DAY))
        await rewrite(self._stage.store, lambda each: _missed(each, mark_ms))
        began_ms = time.time() * 1_000
        server = await self._stage.server()
        served_ms = time.time() * 1_000
        used_s = await self._cpu_after(server)
        stored = await self._wait_for(lambda found: len(found.fired(DAY)) - before >= size.day_most)
        await server.process.stop()
        stored = await read_stored(self._stage.store)
        rows = stored.of(DAY)[before:]
        return self._judge_day(rows, stored, mark_ms, (began_ms, served_ms), (idle_s, used_s))

    async def _cpu_after(self, server: ServerProcess) -> float:
        """Return what a server has used from its start until a while after it serves."""
        await asyncio.sleep(self._size.watched_s)
        return usage_of(server.process.pid).cpu_s

    async def _wait_for(self, is_done: Callable[[Stored], bool]) -> Stored:
        async def look() -> Stored | None:
            found = await read_stored(self._stage.store)
            return found if is_done(found) else None

        found: Stored = await eventually(
            look, "the missed ticks", within_s=LONG_WORK_S, every_s=0.2
        )
        return found

    def _judge_count(self, stored: Stored, ticks: list[int]) -> Result:
        size = self._size
        complaints = check_ticks(stored, COUNT, ticks) + check_tasks(stored)
        complaints += _check_newest(stored.fired(COUNT), ticks[-size.most :])
        complaints += _check_ranges(
            stored.skipped(COUNT), {"catchup_limit": size.missed - size.most}
        )
        fired = [each.recorded_at_ms for each in stored.fired(COUNT)] or [0]
        return spotless(
            f"{self._name}: down for {size.missed} ticks, maxCatchup {size.most}",
            f"the {size.most} newest in order, {size.missed - size.most} in skipped ranges",
            f"{_shown(stored, COUNT)} within {(fired[-1] - fired[0]) / 1_000:.1f} s",
            complaints,
        )

    def _judge_none(self, stored: Stored, ticks: list[int]) -> Result:
        """Judge the newest one by its age: a moment late is not missed."""
        late_ms = stored.of(NONE)[0].recorded_at_ms - ticks[-1]
        fires = ticks[-1:] if late_ms <= 60_000 else []
        complaints = check_ticks(stored, NONE, ticks)
        complaints += _check_newest(stored.fired(NONE), fires)
        complaints += _check_ranges(
            stored.skipped(NONE), {"catchup_limit": len(ticks) - len(fires)}
        )
        return spotless(
            f"{self._name}: down for {len(ticks)} ticks, maxCatchup 0",
            "the newest one if it is at most 60 s late, the others in skipped ranges",
            f"{_shown(stored, NONE)}, the newest {late_ms / 1_000:.1f} s late",
            complaints,
        )

    def _judge_window(self, stored: Stored, ticks: list[int]) -> Result:
        size = self._size
        looked_ms = stored.of(WINDOW)[0].recorded_at_ms
        young = [each for each in ticks if each >= looked_ms - size.window_s * 1_000]
        fires = young or ticks[-1:]
        complaints = check_ticks(stored, WINDOW, ticks)
        complaints += _check_newest(stored.fired(WINDOW), fires)
        complaints += _check_ranges(
            stored.skipped(WINDOW), {"catchup_window": len(ticks) - len(fires)}
        )
        return spotless(
            f"{self._name}: down for {size.missed} ticks, a window of {size.window_s} s",
            "those of the window in order, the others in skipped ranges",
            _shown(stored, WINDOW),
            complaints,
        )

    def _judge_day(
        self,
        rows: list[FireRow],
        stored: Stored,
        mark_ms: int,
        starts_ms: tuple[float, float],
        cpu: tuple[float, float],
    ) -> list[Result]:
        size = self._size
        fires = [each for each in rows if each.kind == "tick"]
        ranges = [each for each in rows if each.kind == "skipped"]
        row_of_all = Stored({DAY: rows}, stored.task_ids)
        ticks = list(range(mark_ms + SECOND_MS, fires[-1].fire_at_ms + 1, SECOND_MS))
        complaints = check_ticks(row_of_all, DAY, ticks) + check_tasks(stored)
        complaints += _check_newest(fires, ticks[-len(fires) :])
        # What is beyond the limit of counting says so.
        skipped = len(ticks) - len(fires)
        complaints += [
            f"the range has {each.count}, exact: {each.is_count_exact}"
            for each in ranges
            if each.count != min(skipped, COUNTED_MAX)
            or each.is_count_exact != (skipped <= COUNTED_MAX)
        ]
        if len(ranges) != 1:
            complaints.append(f"{len(ranges)} ranges")
        began_ms, served_ms = starts_ms
        first_ms = fires[0].recorded_at_ms
        return [
            spotless(
                f"{self._name}: down for {size.day:,} ticks, maxCatchup {size.day_most}",
                "each fires once or is in the one skipped range",
                f"{len(fires)} fired in order, {skipped:,} in {len(ranges)} range",
                complaints,
            ),
            self._first_fire((first_ms - began_ms) / 1_000, (first_ms - served_ms) / 1_000),
            self._cost(*cpu),
        ]

    def _first_fire(self, from_start_s: float, from_serving_s: float) -> Result:
        return Result(
            f"{self._name}: the first fire after {self._size.day:,} ticks",
            f"within {FIRST_S:g} s of the start of the process",
            f"{from_start_s:.2f} s, {from_serving_s:+.2f} s from when it serves; {load_note()}",
            held=from_start_s <= FIRST_S * self._size.scale.slack,
        )

    def _cost(self, idle_s: float, used_s: float) -> Result:
        """Tell the cost; in a short time on a busy machine it says little."""
        name = f"{self._name}: CPU of the server for it"
        measured = (
            f"{used_s - idle_s:.2f} s ({used_s:.2f} s until {self._size.watched_s:g} s after its "
            f"start, {idle_s:.2f} s without); {load_note()}"
        )
        if self._size.is_small:
            return reported(name, measured)
        return Result(name, f"under {CPU_S:g} s", measured, held=used_s - idle_s < CPU_S)


def _missed(schedule: Schedule, mark_ms: int) -> Schedule:
    """Return a schedule as it is when no server has looked at it since the mark."""
    return replace(
        schedule,
        spec=replace(schedule.spec, starts_at_ms=None),
        progress=replace(schedule.progress, fired_until_ms=mark_ms, chosen_until_ms=0),
        due_at_ms=mark_ms + SECOND_MS,
    )


def _last_of(stored: Stored, schedule_id: str) -> int:
    return max((each.until_ms for each in stored.of(schedule_id)), default=0)


def _check_newest(fires: list[FireRow], ticks: list[int]) -> list[str]:
    """Complain unless exactly these ticks fired, in this order."""
    order = [each.fire_at_ms for each in fires]
    times = [each.recorded_at_ms for each in fires]
    complaints = [] if order == ticks else [f"{len(order)} fired, not the {len(ticks)} newest"]
    return complaints + ["the order of time is another one"] * (times != sorted(times))


def _check_ranges(ranges: list[FireRow], counts: dict[str, int]) -> list[str]:
    """Complain unless each reason has this many ticks."""
    found: dict[str, int] = {}
    for each in ranges:
        found[each.reason or ""] = found.get(each.reason or "", 0) + each.count
    return [] if found == counts else [f"skipped {found}, expected {counts}"]


def _shown(stored: Stored, schedule_id: str) -> str:
    ranges = stored.skipped(schedule_id)
    return (
        f"{len(stored.fired(schedule_id))} fired, {sum(each.count for each in ranges)} in "
        f"{len(ranges)} ranges"
    )
