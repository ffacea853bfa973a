"""Kill everything at random under load: nothing lost, nothing doubled, nobody blamed.

Two servers on PostgreSQL, one on SQLite, workers of the SDK with activities in the loop, in threads
and in processes, and a producer. ``TENURE_CAMPAIGN_SEED`` gives the seed of the kills,
``TENURE_CAMPAIGN_MINUTES`` how long they go on on each store at the full size, and
``TENURE_CAMPAIGN_KEEP`` a folder for what everybody has written.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from tenure import Client, TaskFailed
from tenure.errors import NotFound
from tests.postgres import PostgresServer
from tests.soak.campaign.activity import EXCLUSIVE, REASONS, Done
from tests.soak.campaign.checker import CHECKS, FAILED, SUCCEEDED
from tests.soak.campaign.history import (
    Acknowledged,
    History,
    Outcome,
    Part,
    Read,
    read_acknowledged,
    read_executions,
)
from tests.soak.campaign.parts import Parts
from tests.soak.campaign.plan import Rates, make_plan
from tests.soak.campaign.recovery import AFTER_LEASE_S, Case, recoveries
from tests.soak.result import Result
from tests.soak.scene import SCALES, SHORT, Scale, spotless
from tests.wire.journal import Tail
from tests.wire.process import Process
from tests.wire.stage import STORES, Stage, open_stage

SEED: Final = "TENURE_CAMPAIGN_SEED"
MINUTES: Final = "TENURE_CAMPAIGN_MINUTES"
KEEP: Final = "TENURE_CAMPAIGN_KEEP"

SERVERS: Final = {"sqlite": 1, "postgres": 2}
WORKER_ALONE_S: Final = 5.0
# A worker that dies with its server is found by the row of the server, 30 s and a lease later, or
# sooner if most of the others are back.
DRAIN_S: Final = 60.0
# What has not ended by then is lost.
LOST_S: Final = 180.0
# However late it is, each outcome is asked for.
READ_S_MIN: Final = 1.0
PRODUCER_STOP_S: Final = 90.0
READERS: Final = 50
COMPLAINTS_SHOWN_MAX: Final = 20


class Size(msgspec.Struct, frozen=True):
    """The rates of the kills, the workers, and how many tasks come per second."""

    rates: Rates
    workers: int
    slots: int
    per_second: float
    scale: Scale
    # None is another one each time.
    seed: int | None = None


# A lease that a worker keeps also when other tests take the machine's time. Who is killed alone is
# found by its connection, after the grace of the short settings.
_SMALL: Final = msgspec.structs.replace(
    SCALES[True], settings={**SHORT, "session_lease_ms": 6_000}, session_lease_s=6.0
)
SIZES: Final = {
    False: Size(
        Rates(
            duration_s=15 * 60.0,
            every_s={
                (Part.WORKER,): 6.0,
                (Part.CHILD,): 7.0,
                (Part.SERVER,): 45.0,
                (Part.DATABASE,): 75.0,
                (Part.WORKER, Part.SERVER): 150.0,
            },
        ),
        workers=6,
        slots=20,
        per_second=40.0,
        scale=SCALES[False],
    ),
    # First workers, then the others: who dies around an outage is found up to 30 s later, and make
    # test has not that much time.
    True: Size(
        Rates(
            duration_s=20.0,
            every_s={
                (Part.WORKER,): 2.5,
                (Part.CHILD,): 4.0,
                (Part.SERVER,): 8.0,
                (Part.DATABASE,): 10.0,
            },
            outages_after_s=10.0,
            apart_s=4.0,
        ),
        workers=3,
        slots=10,
        per_second=12.0,
        scale=_SMALL,
        seed=1,
    ),
}


async def run(small: bool) -> list[Result]:
    """Play a campaign on each kind of store."""
    size = SIZES[small]
    said = os.environ.get(SEED)
    seed = int(said) if said else size.seed
    if seed is None:
        seed = random.SystemRandom().randrange(1_000_000)
    if not small and MINUTES in os.environ:
        duration_s = float(os.environ[MINUTES]) * 60
        size = msgspec.structs.replace(
            size, rates=msgspec.structs.replace(size.rates, duration_s=duration_s)
        )

    async def play(dialect: str) -> list[Result]:
        async with _open(dialect, size.scale.settings) as (stage, database):
            return await _Campaign(stage, database, size, seed, dialect).play()

    if size.scale.is_side_by_side:
        found = await asyncio.gather(*map(play, STORES))
    else:
        found = [await play(dialect) for dialect in STORES]
    return [each for some in found for each in some]


@contextlib.asynccontextmanager
async def _open(
    dialect: str, settings: Mapping[str, int]
) -> AsyncIterator[tuple[Stage, PostgresServer | None]]:
    """Make a stage on a store that may be killed: nobody else uses it."""
    if dialect == "sqlite":
        async with open_stage(dialect, settings) as stage:
            yield stage, None
        return
    database = await asyncio.to_thread(PostgresServer.start)
    try:
        name = await asyncio.to_thread(database.create_database)
        with tempfile.TemporaryDirectory(prefix="tenure-soak-") as folder:
            async with Stage(database.dsn(name), Path(folder), settings) as stage:
                yield stage, database
    finally:
        await asyncio.to_thread(database.close)


class _Campaign:
    """One campaign on one store."""

    def __init__(
        self, stage: Stage, database: PostgresServer | None, size: Size, seed: int, dialect: str
    ) -> None:
        self._stage = stage
        self._size = size
        self._seed = seed
        self._dialect = dialect
        self._parts = Parts(stage, database, size.slots)
        self._acknowledged = stage.folder / "acknowledged.jsonl"

    async def play(self) -> list[Result]:
        size, parts = self._size, self._parts
        try:
            await parts.start(servers=SERVERS[self._dialect], workers=size.workers)
            producer = await self._start_producer()
            await parts.play(make_plan(self._seed, self._dialect, size.rates))
            healed_s = time.monotonic()
            code = await producer.stop(PRODUCER_STOP_S)
            parts.complaints += [f"the producer ended with {code}"] * bool(code)
            acknowledged = read_acknowledged(Tail(self._acknowledged).lines, REASONS)
            outcomes = await self._drain(acknowledged, healed_s)
            await parts.stop_workers()
        finally:
            self._keep()
        executions = [
            run
            for worker in parts.all_workers
            for run in read_executions(worker.tail.lines, worker.process.pid, EXCLUSIVE)
        ]
        last_s = max((run.ended_s for run in executions if run.ended_s), default=healed_s)
        history = History(acknowledged, executions, parts.kills, outcomes)
        return self._results(history, max(last_s - healed_s, 0.0))

    async def _start_producer(self) -> Process:
        process = await Process.spawn(
            (
                *("-m", "tests.soak.campaign.producer", "--seed", str(self._seed)),
                *("--target", ",".join(self._parts.addresses)),
                *("--journal", str(self._acknowledged)),
                *("--per-second", str(self._size.per_second)),
            ),
            self._stage.folder / "producer.log",
        )
        self._stage.adopt(process)
        return process

    def _keep(self) -> None:
        """Copy what everybody has written to where somebody wants to look at it."""
        if KEEP in os.environ:
            place = Path(os.environ[KEEP]) / f"{self._dialect}-{self._seed}"
            place.mkdir(parents=True, exist_ok=True)
            for path in [*self._stage.folder.glob("*.log"), *self._stage.folder.glob("*.jsonl")]:
                shutil.copy(path, place)
            (place / "kills.json").write_bytes(msgspec.json.encode(self._parts.kills))

    # -- What became of the tasks

    async def _drain(self, acknowledged: list[Acknowledged], healed_s: float) -> list[Outcome]:
        """Read every outcome twice, from different servers where there are several."""
        addresses = self._parts.addresses
        ids = sorted({each.task_id for each in acknowledged})
        free = asyncio.Semaphore(READERS)
        async with Client(addresses[0]) as one, Client(addresses[-1]) as other:

            async def end(task_id: str) -> Read | None:
                try:
                    async with free:
                        left_s = max(healed_s + LOST_S - time.monotonic(), READ_S_MIN)
                        async with asyncio.timeout(left_s):
                            return await _read(one, task_id)
                except (TimeoutError, NotFound):
                    return None

            async def look(task_id: str, first: Read) -> Outcome:
                async with free:
                    return await _look(other, task_id, first)

            firsts = await asyncio.gather(*map(end, ids))
            found = [
                look(task_id, first)
                for task_id, first in zip(ids, firsts, strict=True)
                if first is not None
            ]
            return await asyncio.gather(*found)

    # -- The table

    def _results(self, history: History, drain_s: float) -> list[Result]:
        name = f"campaign, {self._dialect}, seed {self._seed}"
        kills = Counter(str(each.part) for each in history.kills)
        said = ", ".join(f"{part} {count}" for part, count in sorted(kills.items()))
        tasks = {each.task_id for each in history.acknowledged}
        measured = f"{len(tasks):,} tasks, {len(history.executions):,} starts"
        results = [
            Result(
                f"{name}: {self._size.rates.duration_s / 60:.1f} minutes",
                "kill -9 at random",
                said,
                held=bool(tasks) and bool(kills),
            ),
            spotless(
                f"{name}: the processes",
                "nothing ends, or is taken for dead, unless it is killed",
                f"{len(self._parts.all_workers)} workers",
                self._parts.complaints,
            ),
        ]
        for promise, check in CHECKS.items():
            complaints = check(history)
            shown = complaints[:COMPLAINTS_SHOWN_MAX]
            hidden = len(complaints) - len(shown)
            shown += [f"and {hidden} more"] * bool(hidden)
            results.append(spotless(name, promise, measured, shown))
        return [*results, self._drain_result(name, drain_s), *self._times(name, history)]

    def _drain_result(self, name: str, drain_s: float) -> Result:
        return Result(
            f"{name}: the backlog after the last repair",
            f"within {DRAIN_S:g} s",
            f"{drain_s:.1f} s",
            held=drain_s <= DRAIN_S * self._size.scale.slack,
        )

    def _times(self, name: str, history: History) -> list[Result]:
        scale = self._size.scale
        promised_s = {
            Case.WORKER: WORKER_ALONE_S,
            Case.EXCLUSIVE: scale.session_lease_s + AFTER_LEASE_S,
        }
        results = []
        for case, times in recoveries(history, scale.session_lease_s).items():
            limit_s = promised_s.get(case)
            held = None
            if limit_s is not None and times.seconds:
                held = times.share(0.99) <= limit_s * scale.slack
            promised = "reported" if limit_s is None else f"p99 within {limit_s:g} s"
            results.append(Result(f"{name}: {case}", promised, str(times), held=held))
        return results


async def _read(client: Client, task_id: str) -> Read:
    try:
        done = await client.handle(task_id, result=Done).result()
    except TaskFailed as failure:
        return Read(FAILED, failure.reason)
    return Read(SUCCEEDED, value=(done.number, done.attempt))


async def _look(client: Client, task_id: str, first: Read) -> Outcome:
    """Read an outcome again, and what is stored of the attempts if there were several."""
    handle = client.handle(task_id)
    second = await _read(client, task_id)
    task = await handle.describe()
    attempts = await handle.attempts() if task.attempt > 1 else []
    return Outcome(
        task_id,
        first,
        msgspec.structs.replace(second, state=str(task.state)),
        task.attempt,
        tuple((each.attempt, each.outcome) for each in attempts),
    )
