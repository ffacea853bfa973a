"""Many schedules: they cost nothing while none is due, and all in one second fire once.

Two servers run side by side, one with few schedules and one with many, each on a store of its own
of the same kind. They are asked in turns, so that whatever else the machine does slows both down;
the best round of each counts. The schedules are made by an engine on the store, because a client
would take long, and those that are timed by a client. Later the stored rows are rewritten between
two server processes, so that all have their next tick in the same second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from msgspec.structs import replace

from tenure.core.schedule.record import Rule, Schedule
from tenure.engine.clock import SystemClock
from tenure.engine.engine import Engine
from tenure.engine.schedule.command import CreateSchedule
from tenure.store.location import make_store
from tests.bounds import LONG_WORK_S
from tests.polling import eventually
from tests.soak.process_usage import usage_of
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, on_both_stores, spotless
from tests.soak.schedule_client import ScheduleClient, message_of
from tests.soak.schedule_rows import (
    NAMESPACE,
    TARGET,
    FireRow,
    check_tasks,
    content,
    count_fires,
    load_note,
    quantile,
    read_stored,
    reported,
    rewrite,
)
from tests.wire.call import NoAnswer, Refused
from tests.wire.checker import COMPLAINTS_MAX
from tests.wire.client import Client, make_task
from tests.wire.journal import Tail
from tests.wire.process import Process
from tests.wire.server import ServerProcess
from tests.wire.stage import Stage, open_stage

CORE_SHARE: Final = 0.02
RATIO: Final = 1.2
BEAT_MS: Final = 100.0
ENQUEUE_PAUSE_S: Final = 0.02
ENQUEUE_S: Final = 30.0
DAY_MS: Final = 86_400_000
AT_ONCE: Final = 500
# Nobody works on what they start, so that only firing is measured.
QUIET: Final = replace(TARGET, queue="scheduled")
# The first day of a year; nothing is due in this one.
YEARLY: Final = replace(content(Rule(cron="0 0 0 1 1 *")), target=QUIET)


class Size(msgspec.Struct, frozen=True):
    """How many schedules there are, how often both servers are asked, and for how long watched."""

    few: int
    many: int
    rounds: int
    samples: int
    watched_s: float
    workers: int
    # From when the rows are rewritten to the tick.
    due_in_s: float
    # For what one server makes of so many fires.
    patience_s: float
    scale: Scale
    is_small: bool


SIZES: Final = {
    False: Size(100, 100_000, 5, 400, 30.0, 100, 60.0, 900.0, SCALES[False], is_small=False),
    True: Size(20, 150, 2, 10, 0.5, 5, 5.0, LONG_WORK_S, SCALES[True], is_small=True),
}


async def run(small: bool) -> list[Result]:
    """Measure both stores."""
    size = SIZES[small]

    async def scene(stage: Stage, dialect: str) -> list[Result]:
        async with open_stage(dialect, size.scale.settings) as other:
            idle = await _Idle(stage, other, size, dialect).play()
        return idle + await _AllDue(stage, size, dialect).play()

    return await on_both_stores(size.scale, scene)


async def _fill(stage: Stage, count: int) -> None:
    """Make schedules by an engine; the server before it has made the namespace."""
    server = await stage.server()
    await server.process.stop()
    clock = SystemClock()
    left = iter(range(count))
    async with Engine(make_store(stage.store, clock=clock.now_ms), clock=clock, services=()) as it:

        async def make() -> None:
            for number in left:
                await it.submit(
                    CreateSchedule(
                        namespace=NAMESPACE, schedule_id=f"filled-{number:06}", spec=YEARLY
                    )
                )

        await asyncio.gather(*(make() for _ in range(min(count, AT_ONCE))))


class _Idle:
    """Two servers whose schedules are not due."""

    def __init__(self, many: Stage, few: Stage, size: Size, dialect: str) -> None:
        self._stages = (few, many)
        self._size = size
        self._name = f"many schedules, {dialect}"

    async def play(self) -> list[Result]:
        size = self._size
        made = size.rounds * size.samples
        for stage, count in zip(self._stages, (size.few, size.many - made), strict=True):
            await _fill(stage, count)
        servers = [await each.server("--list-rate", "0") for each in self._stages]
        clients = [ScheduleClient(each.grpc) for each in servers]
        shares = await self._watch(servers)
        pages = [_Pages(each) for each in clients]
        lists = await self._ask([each.next for each in pages])
        makers = [_Maker(each) for each in clients]
        creates = await self._ask([each.next for each in makers])
        for client in clients:
            await client.close()
        for server in servers:
            await server.process.stop()
        return [
            self._cost(*shares),
            self._compare("list a page of 100", *lists),
            self._compare("create", *creates),
        ]

    async def _watch(self, servers: list[ServerProcess]) -> list[float]:
        """Return the share of a core that each server uses."""
        await asyncio.sleep(self._size.watched_s / 2)
        before = [usage_of(each.process.pid) for each in servers]
        await asyncio.sleep(self._size.watched_s)
        after = [usage_of(each.process.pid) for each in servers]
        return [(b.cpu_s - a.cpu_s) / (b.at_s - a.at_s) for a, b in zip(before, after, strict=True)]

    async def _ask(self, calls: list[Callable[[], Awaitable[None]]]) -> list[list[list[float]]]:
        """Ask the servers in turns; return how long each took, in milliseconds by round."""
        took: list[list[list[float]]] = [[] for _ in calls]
        for _ in range(self._size.rounds):
            for each in took:
                each.append([])
            for _ in range(self._size.samples):
                for call, rounds in zip(calls, took, strict=True):
                    began_s = time.perf_counter()
                    await call()
                    rounds[-1].append((time.perf_counter() - began_s) * 1_000)
        return took

    def _cost(self, few: float, many: float) -> Result:
        """Tell the cost; in a short time on a busy machine it says nothing."""
        name = f"{self._name}: {self._size.many:,}, none due, cost of the server"
        measured = (
            f"{many - few:.2%} more than with {self._size.few} (which cost {few:.2%}, many "
            f"{many:.2%}); {load_note()}"
        )
        if self._size.is_small:
            return reported(name, measured)
        promised = f"under {CORE_SHARE:.0%} of a core"
        return Result(name, promised, measured, held=many - few < CORE_SHARE)

    def _compare(self, what: str, few: list[list[float]], many: list[list[float]]) -> Result:
        few_ms, many_ms = (min(quantile(each, 0.99) for each in rounds) for rounds in (few, many))
        medians = [min(quantile(each, 0.5) for each in rounds) for rounds in (few, many)]
        ratio = many_ms / few_ms
        name = f"{self._name}: {what}, {self._size.many:,} beside {self._size.few}"
        measured = (
            f"p99 {many_ms:.1f} to {few_ms:.1f} ms, {ratio:.2f} times (median {medians[1]:.1f} to "
            f"{medians[0]:.1f} ms); {load_note()}"
        )
        if self._size.is_small:
            return reported(name, measured)
        return Result(name, f"p99 within {RATIO:g} times", measured, held=ratio <= RATIO)


class _Pages:
    """Reads one page after the other, and begins again behind the last one."""

    def __init__(self, client: ScheduleClient) -> None:
        self._client = client
        self._token = ""

    async def next(self) -> None:
        self._token = (await self._client.page(self._token)).next_page_token


class _Maker:
    """Creates one schedule after the other, between those that are there."""

    def __init__(self, client: ScheduleClient) -> None:
        self._client = client
        self._message = message_of(YEARLY)
        self._count = 0

    async def next(self) -> None:
        self._count += 1
        await self._client.create(f"filled-{self._count:06}-more", self._message)


class _AllDue:
    """A server whose schedules are all due in the same second, beside heartbeats and enqueues."""

    def __init__(self, stage: Stage, size: Size, dialect: str) -> None:
        self._stage = stage
        self._size = size
        self._name = f"many schedules, {dialect}: {size.many:,} due in one second"

    async def play(self) -> list[Result]:
        size = self._size
        tick_ms = round(time.time() + size.due_in_s) * 1_000
        count = await rewrite(self._stage.store, lambda each: _due_at(each, tick_ms))
        server = await self._stage.server()
        tail = await self._start_fleet(server)
        ready_s = tick_ms / 1_000 - time.time()
        async with self._enqueuing(server) as enqueued:
            await asyncio.sleep(max(0.0, tick_ms / 1_000 - time.time()))
            began = (time.monotonic(), usage_of(server.process.pid))
            await eventually(self._is_over, "all fires", within_s=size.patience_s, every_s=0.5)
            ended = (time.monotonic(), usage_of(server.process.pid))
        await server.process.stop()
        stored = await read_stored(self._stage.store)
        fires = stored.all_fired
        complaints = _check_once(fires, count, tick_ms) + check_tasks(stored, enqueued.ids)
        if count != size.many:
            complaints.append(f"{count} schedules, not {size.many}")
        cpu_s = ended[1].cpu_s - began[1].cpu_s
        beats = [
            float(line.text) for line in tail.of("beat") if began[0] <= line.mono_s <= ended[0]
        ]
        return [
            spotless(
                self._name,
                "each fires once",
                f"{len(fires):,} fires of {count:,} schedules",
                complaints,
            ),
            self._report_time(fires, ready_s, cpu_s),
            self._judge_beats(beats),
            enqueued.judge(self._name),
        ]

    async def _is_over(self) -> bool:
        return await count_fires(self._stage.store) >= self._size.many

    async def _start_fleet(self, server: ServerProcess) -> Tail:
        journal = self._stage.folder / "fleet.jsonl"
        process = await Process.spawn(
            (
                *("-m", "tests.wire.many_workers", "--target", server.grpc, "--slots", "1"),
                *("--workers", str(self._size.workers), "--journal", str(journal)),
            ),
            self._stage.folder / "fleet.log",
        )
        self._stage.adopt(process)
        tail = Tail(journal)
        await tail.wait(self._size.workers, "welcomed")
        return tail

    @asynccontextmanager
    async def _enqueuing(self, server: ServerProcess) -> AsyncIterator[_Enqueues]:
        enqueues = _Enqueues(await self._stage.client(server.grpc))
        async with asyncio.TaskGroup() as group:
            group.create_task(enqueues.run())
            try:
                yield enqueues
            finally:
                enqueues.is_stopping = True

    def _report_time(self, fires: list[FireRow], ready_s: float, cpu_s: float) -> Result:
        late_s = [each.lateness_ms / 1_000 for each in fires]
        last_s = max(late_s, default=0.0)
        return reported(
            f"{self._name}: time",
            f"{last_s:.1f} s until the last one ({len(fires) / max(last_s, 0.001):,.0f}/s), the "
            f"first after {min(late_s, default=0.0):.2f} s, median {quantile(late_s, 0.5):.1f} s; "
            f"{1e6 * cpu_s / max(len(fires), 1):.0f} µs of CPU per fire; ready {ready_s:.0f} s "
            f"before; {load_note()}",
        )

    def _judge_beats(self, beats: list[float]) -> Result:
        name = f"{self._name}: heartbeats of {self._size.workers} workers meanwhile"
        p99_ms = quantile(beats, 0.99)
        measured = (
            f"p99 {p99_ms:.0f} ms, median {quantile(beats, 0.5):.0f} ms, longest "
            f"{max(beats, default=0.0):.0f} ms of {len(beats):,}; {load_note()}"
        )
        if self._size.is_small:
            return reported(name, measured)
        promised = f"p99 under {BEAT_MS:.0f} ms"
        return Result(name, promised, measured, held=bool(beats) and p99_ms < BEAT_MS)


class _Enqueues:
    """A client that enqueues one task after the other and sends nothing again."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.ids: list[str] = []
        self.is_stopping = False
        self._took_ms: list[float] = []
        self._refused: list[str] = []

    async def run(self) -> None:
        while not self.is_stopping:
            task = make_task()
            self.ids.append(task.task_id)
            began_s = time.perf_counter()
            try:
                await self._client.try_enqueue(task, timeout_s=ENQUEUE_S)
            except (NoAnswer, Refused) as error:
                self._refused.append(str(error))
            self._took_ms.append((time.perf_counter() - began_s) * 1_000)
            await asyncio.sleep(ENQUEUE_PAUSE_S)

    def judge(self, name: str) -> Result:
        return Result(
            f"{name}: enqueues meanwhile",
            "none refused",
            f"{len(self._refused)} of {len(self.ids):,} refused, median "
            f"{quantile(self._took_ms, 0.5):.0f} ms, p99 {quantile(self._took_ms, 0.99):.0f} ms",
            held=not self._refused,
            details=tuple(self._refused[:COMPLAINTS_MAX]),
        )


def _due_at(schedule: Schedule, tick_ms: int) -> Schedule:
    """Return a schedule that has one tick a day, the next of them then."""
    rule = Rule(every_ms=DAY_MS, offset_ms=tick_ms % DAY_MS)
    return replace(
        schedule,
        spec=replace(schedule.spec, rule=rule),
        progress=replace(schedule.progress, fired_until_ms=tick_ms - 1),
        due_at_ms=tick_ms,
    )


def _check_once(fires: list[FireRow], count: int, tick_ms: int) -> list[str]:
    """Complain unless each schedule fired once, and for this tick."""
    complaints = [
        f"{each.schedule_id} fired for {each.fire_at_ms}"
        for each in fires
        if each.fire_at_ms != tick_ms
    ]
    distinct = len({each.schedule_id for each in fires})
    if (len(fires), distinct) != (count, count):
        complaints.append(f"{len(fires)} fires of {distinct} schedules, not {count}")
    return complaints[:COMPLAINTS_MAX]
