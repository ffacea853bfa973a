"""A map over many items: few hand-outs, visible progress, and a kill that repeats nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

import msgspec

from tenure import Client, RunHandle, TaskState
from tests.bounds import LONG_WORK_S
from tests.polling import eventually
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, on_both_stores, spotless
from tests.soak.sdk_child import map_many
from tests.soak.sdk_scene import SdkWorker
from tests.wire.stage import Stage

HAND_OUTS_MAX: Final = 5
CHILDREN_MAX: Final = 1_000
SEEN_MIN: Final = 3
LOOK_S: Final = 0.05
CODE: Final = "tests.soak.sdk_child"
QUEUE: Final = "default"


class Size(msgspec.Struct, frozen=True):
    """How many items, and after how many of them the worker is killed."""

    items: int
    killed_after: int
    slots: int
    scale: Scale


SIZES: Final = {
    False: Size(10_000, 4_000, 200, SCALES[False]),
    True: Size(300, 100, 20, SCALES[True]),
}


async def run(small: bool) -> list[Result]:
    """Map on both stores."""
    size = SIZES[small]
    return await on_both_stores(size.scale, lambda stage, name: _Map(stage, size, name).play())


class _Map:
    """One run that maps, and its workers."""

    def __init__(self, stage: Stage, size: Size, dialect: str) -> None:
        self._stage = stage
        self._size = size
        self._name = f"map over {size.items:,}, {dialect}"
        # What was to be seen of the items, each time it was another number.
        self._seen: list[int] = []

    async def play(self) -> list[Result]:
        size = self._size
        server = await self._stage.server()
        async with Client(server.grpc) as client:
            # Nobody has the activity: what is stored of it stays as it was stored.
            first = await self._worker(server.grpc, "--no-activities")
            handle = await client.start(map_many, size.items)
            await eventually(lambda: self._is_spawned(handle), "items", within_s=LONG_WORK_S)
            largest = await self._largest_transaction(client)
            await first.process.kill()
            killed = await self._worker(server.grpc)
            watching = asyncio.create_task(self._watch(handle))
            await killed.tail.wait(size.killed_after, "item")
            await killed.process.kill()
            finished = await self._finished(client)
            last = await self._worker(server.grpc)
            total = await handle.result(timeout=LONG_WORK_S * 2)
            watching.cancel()
            hand_outs = (await handle.describe()).attempt
        complaints = self._judge(total, finished, [killed, last])
        return [
            Result(
                f"{self._name}: hand-outs of the run, with one kill",
                f"at most {HAND_OUTS_MAX}",
                str(hand_outs),
                held=hand_outs <= HAND_OUTS_MAX,
            ),
            Result(
                f"{self._name}: children stored by one transaction",
                f"at most {CHILDREN_MAX:,}",
                f"{largest:,}",
                held=largest <= CHILDREN_MAX,
            ),
            Result(
                f"{self._name}: progress",
                "is to be seen meanwhile",
                f"{len(self._seen)} numbers, from {min(self._seen, default=0):,} to "
                f"{max(self._seen, default=0):,}",
                held=len(self._seen) >= SEEN_MIN,
            ),
            spotless(
                f"{self._name}: its worker is killed",
                "no finished item is repeated",
                f"{len(finished):,} were finished",
                complaints,
            ),
        ]

    async def _worker(self, target: str, *options: str) -> SdkWorker:
        return await SdkWorker.start(
            self._stage,
            target,
            slots=self._size.slots,
            options=("--workflows", CODE, "--activities", CODE, *options),
        )

    async def _is_spawned(self, handle: RunHandle[int]) -> bool:
        groups = (await handle.describe()).groups
        return bool(groups) and groups[0].spawned == self._size.items

    async def _largest_transaction(self, client: Client) -> int:
        """Return how many items at most were stored at one instant, which is one transaction."""
        created = Counter([info.created_at async for info in client.list(type="work")])
        assert created.total() == self._size.items
        return max(created.values())

    async def _watch(self, handle: RunHandle[int]) -> None:
        while True:
            for group in (await handle.describe()).groups:
                ended = group.total - group.open_count
                if 0 < ended < group.total and ended not in self._seen:
                    self._seen.append(ended)
            await asyncio.sleep(LOOK_S)

    async def _finished(self, client: Client) -> set[str]:
        found = client.list(type="work", state=TaskState.SUCCEEDED)
        return {info.task_id async for info in found}

    def _judge(self, total: int, finished: set[str], workers: list[SdkWorker]) -> list[str]:
        count = self._size.items
        expected = count * (count - 1) // 2
        complaints = [] if total == expected else [f"the sum is {total}, not {expected}"]
        done = Counter(line.task_id for each in workers for line in each.tail.of("item"))
        complaints += [
            f"item {task_id} was done {done[task_id]} times"
            for task_id in finished
            if done[task_id] != 1
        ]
        if len(done) != count:
            complaints.append(f"{len(done):,} items were done")
        return complaints
