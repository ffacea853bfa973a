"""A worker that is busy for five leases is drained: nothing lost, nothing twice, nothing new."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import msgspec
from msgspec.structs import replace

from tests.bounds import WORK_S
from tests.polling import eventually
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, on_both_stores, spotless
from tests.wire import checker
from tests.wire.client import Client, make_task
from tests.wire.journal import merge
from tests.wire.load import Load
from tests.wire.stage import Stage, WorkerProcess

MODES: Final = ("session", "poll")
LEASES: Final = 5


class Size(msgspec.Struct, frozen=True):
    """How many long tasks the worker has, and the pause between batches of short ones."""

    tasks: int
    pause_s: float
    scale: Scale


# Five leases of make test are six seconds.
_SMALL: Final = replace(
    SCALES[True],
    settings={**SCALES[True].settings, "session_lease_ms": 1_200, "poll_lease_ms": 1_200},
    session_lease_s=1.2,
    poll_lease_s=1.2,
)
SIZES: Final = {False: Size(10, 0.05, SCALES[False]), True: Size(3, 0.1, _SMALL)}


async def run(small: bool) -> list[Result]:
    """Drain a worker of each mode, on both stores."""
    size = SIZES[small]

    async def scene(stage: Stage, dialect: str) -> list[Result]:
        server = await stage.server()
        client = await stage.client(server.grpc)
        drains = [_Drain(stage, client, size, mode) for mode in MODES]
        results = await asyncio.gather(*(each.play(dialect, server.grpc) for each in drains))
        return [each for some in results for each in some]

    return await on_both_stores(size.scale, scene)


class _Drain:
    """A worker that is drained under load, and one that takes the rest."""

    def __init__(self, stage: Stage, client: Client, size: Size, mode: str) -> None:
        self._stage = stage
        self._client = client
        self._size = size
        self._mode = mode
        self._load = Load(client, sleep_ms=20, batch=2, pause_s=size.pause_s, queue=mode)

    async def play(self, dialect: str, target: str) -> list[Result]:
        size, mode = self._size, self._mode
        busy_s = LEASES * size.scale.lease_s(mode)
        drained, other = await asyncio.gather(
            self._stage.worker(target, mode=mode, queue=mode, slots=3 * size.tasks),
            self._stage.worker(target, mode=mode, queue=mode, slots=20, is_gated=True),
        )
        long = [make_task(round(busy_s * 1_000), queue=mode) for _ in range(size.tasks)]
        long_ids = await self._client.enqueue(long)
        await drained.tail.wait(size.tasks, "start")
        drained_id = drained.worker_id
        await other.enter()
        async with self._load.running():
            count = len(drained.tail.of("start")) + 2
            await eventually(
                lambda: len(drained.tail.of("start")) >= count, "work for both", within_s=WORK_S
            )
            await self._client.drain(drained_id)
            acknowledged_at_ms = time.time_ns() // 1_000_000
            code = await drained.process.wait(busy_s + WORK_S)
        took_s = drained.tail.lines[-1].mono_s - drained.tail.of("start")[0].mono_s
        ids = long_ids + self._load.ids
        await self._client.wait_all(ids, WORK_S)
        late = await self._late(ids, drained_id, acknowledged_at_ms)
        name = f"drain, {dialect}: {mode} mode"
        return [
            Result(
                f"{name}: works on for {LEASES} leases and ends by itself",
                "exit code 0 after its last task",
                f"exit code {code} after {took_s:.1f} s of work",
                held=code == 0 and took_s >= busy_s,
            ),
            spotless(
                f"{name}: no hand-out after the acknowledgement",
                "none",
                f"{len(ids)} tasks looked at",
                late,
            ),
            await self._judge(name, [drained, other], ids, long_ids),
        ]

    async def _late(self, ids: list[str], worker_id: str, acknowledged_at_ms: int) -> list[str]:
        complaints = []
        for task_id in ids:
            complaints += [
                f"task {task_id} was handed out {each.handed_at_ms - acknowledged_at_ms} ms late"
                for each in await self._client.attempts(task_id)
                if each.worker_id == worker_id and each.handed_at_ms > acknowledged_at_ms
            ]
        return complaints

    async def _judge(
        self, name: str, workers: list[WorkerProcess], ids: list[str], long_ids: list[str]
    ) -> Result:
        lines = merge([each.tail for each in workers])
        tasks = await self._client.get_all(ids)
        by_id = {task.task_id: task for task in tasks}
        complaints = checker.check_once(lines, ids)
        complaints += checker.check_succeeded(by_id[each] for each in long_ids)
        complaints += checker.check_calm(lines) + checker.check_accepted(lines)
        # A task that arrived while draining was given back, which costs an attempt and no run.
        for task in tasks:
            complaints += checker.check_succeeded([task], attempt=task.attempt)
        returned = len([line for line in lines if line.event == "handed_back"])
        return spotless(
            f"{name}: nothing lost, nothing run twice",
            "every task succeeds with one start",
            f"{len(ids)} tasks, {returned} given back",
            complaints,
        )
