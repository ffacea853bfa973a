"""A worker is killed, or stands still and comes back: its tasks run elsewhere, in time and once."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Final

import msgspec

from tenure.v1.task_pb2 import TASK_STATE_RUNNING
from tests.bounds import WORK_S
from tests.polling import eventually
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, bound, on_both_stores, spotless
from tests.wire import checker
from tests.wire.client import Client, make_task
from tests.wire.journal import merge
from tests.wire.stage import Stage, WorkerProcess

CRASH_SECONDS: Final = 5.0
AFTER_LEASE_SECONDS: Final = 2.0
FOREVER_MS: Final = 600_000
MODES: Final = ("session", "poll")


class Size(msgspec.Struct, frozen=True):
    """How many tasks the worker holds."""

    tasks: int
    scale: Scale


SIZES: Final = {False: Size(100, SCALES[False]), True: Size(6, SCALES[True])}


async def run(small: bool) -> list[Result]:
    """Lose a worker in both modes, by SIGKILL and by SIGSTOP, on both stores."""
    size = SIZES[small]

    async def scene(stage: Stage, dialect: str) -> list[Result]:
        server = await stage.server()
        client = await stage.client(server.grpc)
        # All at once, each in a queue of its own: the losses have nothing to do with each other.
        losses = [_Loss(stage, client, size, mode, server.grpc) for mode in MODES for _ in "12"]
        results = await asyncio.gather(
            *(loss.kill(dialect) for loss in losses[::2]),
            *(loss.pause(dialect) for loss in losses[1::2]),
        )
        return [each for some in results for each in some]

    return await on_both_stores(size.scale, scene)


class _Loss:
    """One worker that is lost, and one that takes over."""

    def __init__(self, stage: Stage, client: Client, size: Size, mode: str, target: str) -> None:
        self._stage = stage
        self._client = client
        self._size = size
        self._mode = mode
        self._target = target
        self._queue = uuid.uuid4().hex
        self._ids: list[str] = []

    @property
    def _lease_s(self) -> float:
        return self._size.scale.lease_s(self._mode)

    async def kill(self, dialect: str) -> list[Result]:
        """Kill the worker with SIGKILL."""
        lost, heir = await self._prepare(FOREVER_MS)
        killed_at_s = time.monotonic()
        await lost.process.kill()
        took_s = await self._wait_taken_over(heir) - killed_at_s
        promised_s = CRASH_SECONDS if self._mode == "session" else self._after_lease_s
        name = f"crash, {dialect}: kill -9 of a worker in {self._mode} mode"
        return [
            bound(f"{name}: its tasks run elsewhere", promised_s, took_s, self._size.scale),
            await self._judge(name, lost, heir),
        ]

    async def pause(self, dialect: str) -> list[Result]:
        """Stop the worker with SIGSTOP for longer than its lease, and let it go on."""
        sleep_ms = round(self._lease_s * 1_000)
        lost, heir = await self._prepare(sleep_ms)
        paused_at_s = time.monotonic()
        lost.process.pause()
        taken_at_s = await self._wait_taken_over(heir)
        # Its activities must be over when it goes on, so that it has results to report.
        over_at_s = lost.tail.of("start")[-1].mono_s + sleep_ms / 1_000
        await eventually(
            lambda: time.monotonic() > over_at_s, "the end of the sleep", within_s=WORK_S
        )
        lost.process.go_on()
        resumed_at_s = time.monotonic()
        await lost.tail.wait(2, "registered")
        back_s = lost.tail.of("registered")[1].mono_s - resumed_at_s
        name = f"crash, {dialect}: SIGSTOP of a worker in {self._mode} mode"
        scale = self._size.scale
        took_s = taken_at_s - paused_at_s
        return [
            bound(f"{name}: its tasks run elsewhere", self._after_lease_s, took_s, scale),
            await self._judge(name, lost, heir),
            self._judge_late(name, lost, back_s),
        ]

    @property
    def _after_lease_s(self) -> float:
        return self._lease_s + AFTER_LEASE_SECONDS

    async def _prepare(self, sleep_ms: int) -> tuple[WorkerProcess, WorkerProcess]:
        """Let one worker hold all tasks, and another wait with free slots."""
        slots = self._size.tasks
        lost, heir = await asyncio.gather(self._worker(), self._worker(is_gated=True))
        tasks = [make_task([sleep_ms, 10], queue=self._queue) for _ in range(slots)]
        self._ids = await self._client.enqueue(tasks)
        # Confirmed: from here on the lease decides, and not the delivery timeout.
        await self._client.wait_state(self._ids, TASK_STATE_RUNNING, WORK_S)
        await heir.enter()
        return lost, heir

    async def _worker(self, *, is_gated: bool = False) -> WorkerProcess:
        return await self._stage.worker(
            self._target,
            mode=self._mode,
            slots=self._size.tasks,
            queue=self._queue,
            is_gated=is_gated,
        )

    async def _wait_taken_over(self, heir: WorkerProcess) -> float:
        count = self._size.tasks
        await heir.tail.wait(count, "start")
        return heir.tail.of("start")[-1].mono_s

    async def _judge(self, name: str, lost: WorkerProcess, heir: WorkerProcess) -> Result:
        await self._client.wait_all(self._ids, WORK_S)
        tasks = await self._client.get_all(self._ids)
        lines = merge([lost.tail, heir.tail])
        complaints = checker.check_succeeded(tasks, attempt=2)
        complaints += checker.check_accepted(lines)
        complaints += checker.check_once(heir.tail.lines, self._ids)
        complaints += [
            f"task {task.task_id} was interrupted {task.interruption_count} times"
            for task in tasks
            if task.interruption_count != 1
        ]
        await asyncio.gather(lost.process.stop(), heir.process.stop())
        return spotless(
            f"{name}: each put back once, one outcome",
            "attempt 2 succeeds, one interruption, no failure charged",
            f"{len(tasks)} tasks",
            complaints,
        )

    def _judge_late(self, name: str, lost: WorkerProcess, back_s: float) -> Result:
        refused = [line.text for line in lost.tail.of("refused")]
        count = len({line.worker_id for line in lost.tail.of("registered")})
        is_right = refused == ["worker_inactive"] * self._size.tasks and count == 2
        return Result(
            f"{name}: late results and a new incarnation",
            f"{self._size.tasks} refused with worker_inactive, then registered again",
            f"{len(refused)} refused with {', '.join(sorted(set(refused)))}, "
            f"{count} incarnations, back after {back_s:.2f} s",
            held=is_right,
        )
