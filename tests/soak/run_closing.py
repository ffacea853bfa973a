"""A parent with thousands of children ends while its server is killed: every policy holds."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Final

import msgspec

from tenure import Client, RunStatus
from tests.bounds import LONG_WORK_S
from tests.polling import eventually
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, bound, on_both_stores, spotless
from tests.soak.sdk_child import POLICIES, keep_children
from tests.soak.sdk_scene import SdkWorker
from tests.wire.stage import Stage

CODE: Final = "tests.soak.sdk_child"
# How each child ends, by its policy; an abandoned one still waits.
ENDS: Final = {
    "cancel": RunStatus.CANCELLED,
    "terminate": RunStatus.FAILED,
    "abandon": RunStatus.WAITING,
}


class Size(msgspec.Struct, frozen=True):
    """How many children, and how often the server is killed while they are closed."""

    children: int
    kills: int
    kill_after_s: float
    scale: Scale

    @property
    def promised_s(self) -> float:
        """Five seconds, and one more for each thousand children."""
        return 5.0 + self.children / 1_000


SIZES: Final = {False: Size(3_000, 3, 0.3, SCALES[False]), True: Size(60, 1, 0.05, SCALES[True])}


async def run(small: bool) -> list[Result]:
    """Terminate a parent on both stores."""
    size = SIZES[small]
    return await on_both_stores(size.scale, lambda stage, name: _Closing(stage, size, name).play())


class _Closing:
    """A parent, its children, and what became of them."""

    def __init__(self, stage: Stage, size: Size, dialect: str) -> None:
        self._stage = stage
        self._size = size
        self._name = f"parent of {size.children:,} terminated, {dialect}"

    async def play(self) -> list[Result]:
        size = self._size
        server = await self._stage.server()
        proxy = await self._stage.proxy(server.grpc)
        options = ("--workflows", CODE, "--activities", CODE)
        worker = await SdkWorker.start(self._stage, proxy.address, slots=200, options=options)
        async with Client(proxy.address) as client:
            parent = await client.start(keep_children, size.children)
            await eventually(
                lambda: self._are(client, dict.fromkeys(POLICIES, RunStatus.WAITING)),
                "all children wait",
                within_s=LONG_WORK_S,
                every_s=0.2,
            )
            await parent.terminate()
            for _ in range(size.kills):
                await asyncio.sleep(size.kill_after_s)
                await server.kill()
                server = await self._stage.server()
                proxy.target = server.grpc
            began = time.monotonic()
            await eventually(
                lambda: self._are(client, ENDS), "closed", within_s=LONG_WORK_S, every_s=0.1
            )
            took_s = time.monotonic() - began
            # What was not to be closed is not closed later either.
            await asyncio.sleep(1.0)
            counts = await self._counts(client)
        complaints = self._judge(counts, worker)
        return [
            spotless(
                f"{self._name}, server killed {size.kills} times",
                "every child ends by its policy",
                ", ".join(f"{count:,} {type} {status}" for (type, status), count in counts.items()),
                complaints,
            ),
            bound(f"{self._name}: all are closed", size.promised_s, took_s, size.scale),
        ]

    async def _counts(self, client: Client) -> Counter[tuple[str, RunStatus]]:
        return Counter(
            [
                (policy, run.status)
                for policy in POLICIES
                async for run in client.list_runs(type=f"stay_{policy}")
            ]
        )

    async def _are(self, client: Client, ends: dict[str, RunStatus]) -> bool:
        each = self._size.children // len(POLICIES)
        counts = await self._counts(client)
        return counts == Counter(dict.fromkeys(ends.items(), each))

    def _judge(self, counts: Counter[tuple[str, RunStatus]], worker: SdkWorker) -> list[str]:
        each = self._size.children // len(POLICIES)
        complaints = [
            f"{count} of {policy} are {status}"
            for (policy, status), count in counts.items()
            if ENDS[policy] is not status
        ]
        cleaned = Counter(line.task_id for line in worker.tail.of("cleaned-up"))
        if len(cleaned) != each:
            complaints.append(f"{len(cleaned)} children cleaned up, not {each}")
        return complaints
