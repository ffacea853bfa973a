"""Many heartbeats, and a third of their answers lost: everything counts exactly once."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import msgspec

from tenure.v1.task_pb2 import TASK_STATE_RUNNING, TaskState
from tenure.v1.worker_pb2 import WORKER_STATUS_ONLINE
from tests.soak.result import Result
from tests.soak.scene import DEFAULT, SCALES, on_both_stores, spotless
from tests.wire.chain import Chain, PollChain, SessionChain
from tests.wire.client import Client, make_task
from tests.wire.proxy import Proxy
from tests.wire.stage import Stage

LOSS: Final = 0.3
HELD: Final = 10
LOOK_EVERY: Final = 10
FOREVER_MS: Final = 600_000


class Size(msgspec.Struct, frozen=True):
    """How many heartbeats each worker sends."""

    beats: int


SIZES: Final = {False: Size(1_000), True: Size(60)}


async def run(small: bool) -> list[Result]:
    """Beat in three ways at once, on both stores, with the leases that are the default."""
    size = SIZES[small]
    scale = msgspec.structs.replace(SCALES[small], settings=DEFAULT)

    async def scene(stage: Stage, dialect: str) -> list[Result]:
        server = await stage.server()
        client = await stage.client(server.grpc)
        proxies = [await stage.proxy(server.grpc, seed=seed) for seed in range(3)]
        lines = [proxy.address for proxy in proxies]
        chains: list[tuple[str, Chain]] = [
            ("totals in calls", PollChain(server.grpc, lines[0], "q0", uses_deltas=False)),
            ("deltas in calls", PollChain(server.grpc, lines[1], "q1", uses_deltas=True)),
            ("totals in a session", SessionChain(server.grpc, lines[2], "q2")),
        ]
        return await asyncio.gather(
            *(
                _Beats(client, chain, proxy, f"lost beats, {dialect}: {name}").play(number, size)
                for number, ((name, chain), proxy) in enumerate(zip(chains, proxies, strict=True))
            )
        )

    return await on_both_stores(scale, scene)


class _Beats:
    """One worker that beats over a lossy line, and what the registry says of it."""

    def __init__(self, client: Client, chain: Chain, proxy: Proxy, name: str) -> None:
        self._client = client
        self._chain = chain
        self._proxy = proxy
        self._name = name
        self._longest_ms = 0
        self._complaints: list[str] = []

    async def play(self, number: int, size: Size) -> Result:
        chain = self._chain
        tasks = [make_task(FOREVER_MS, queue=f"q{number}") for _ in range(HELD)]
        ids = await self._client.enqueue(tasks)
        await chain.register(HELD)
        await chain.take(HELD)
        self._proxy.loss = LOSS
        while chain.sent_count < size.beats:
            await chain.beat()
            if chain.completed_count % LOOK_EVERY == 0:
                await self._look()
        self._proxy.loss = 0.0
        await chain.beat()
        await chain.beat()
        await self._look()
        await self._judge(ids)
        await chain.close()
        return spotless(
            f"{self._name}: {chain.sent_count} heartbeats, {LOSS:.0%} of the answers lost",
            "totals exact, no double binding, lease never beyond its length",
            f"{self._proxy.lost_count} of {self._proxy.answer_count} answers lost, "
            f"{chain.mismatch_count} mismatches, total {chain.completed_count}, "
            f"longest lease {self._longest_ms} ms",
            self._complaints,
        )

    async def _look(self) -> None:
        """The lease ends no later than its length after now."""
        worker = await self._client.worker(self._chain.worker_id)
        rest_ms = worker.lease_until_ms - time.time_ns() // 1_000_000
        from_beat_ms = worker.lease_until_ms - worker.last_heartbeat_at.ToMilliseconds()
        self._longest_ms = max(self._longest_ms, from_beat_ms)
        if max(rest_ms, from_beat_ms) > worker.lease_duration_ms:
            self._complaints.append(f"the lease lasts {rest_ms} ms, {from_beat_ms} from its beat")
        if worker.status != WORKER_STATUS_ONLINE:
            self._complaints.append("the worker was judged")

    async def _judge(self, ids: list[str]) -> None:
        chain = self._chain
        worker = await self._client.worker(chain.worker_id)
        if worker.total_completed != chain.completed_count:
            self._complaints.append(
                f"{worker.total_completed} ends were counted instead of {chain.completed_count}"
            )
        if worker.held_count != HELD:
            self._complaints.append(f"{worker.held_count} attempts are held instead of {HELD}")
        for task in await self._client.get_all(ids):
            found = (task.state, task.attempt, task.worker_id)
            if found != (TASK_STATE_RUNNING, 1, chain.worker_id):
                state = TaskState.Name(task.state)
                self._complaints.append(f"{task.task_id} is {state} with attempt {task.attempt}")
