"""Calls to served workers: what one costs the server, against a bare unary call in the same run.

The workers are in a process of their own, hold nothing, and answer at once. ``cpu_ms_N`` and
``kib_N`` are for each call, and for each worker, with N workers; ``ratio_to_bare`` is for 300.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import tempfile
import time
from pathlib import Path

import grpc

from benchmarks.context import QUICK, Context
from tenure.api.rpc.served.worker_caller import METHOD
from tenure.api.server import Server
from tenure.api.setting import Address, ServerSettings
from tenure.engine.clock import SystemClock
from tenure.engine.settings import Settings
from tenure.store.location import make_store
from tenure.v1 import worker_service_pb2 as pb

COUNTS = (100, 300, 1_000)
COMPARED = 300
TICK_MS = 1_000
SETTLE_S = 4.0
SECONDS = 6.0
WAITS_MAX = 300


async def run(context: Context) -> dict[str, float]:
    """Measure each number of workers."""
    counts = COUNTS[:2] if context.scale == QUICK else COUNTS
    found: dict[str, float] = {}
    for count in counts:
        found |= await _measure(count)
    found["ratio_to_bare"] = found[f"cpu_ms_{COMPARED}"] / found[f"bare_cpu_ms_{COMPARED}"]
    return found


async def _measure(count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        clock = SystemClock()
        store = make_store(f"sqlite:///{folder}/bench.db", clock=clock.now_ms)
        server = Server(
            store,
            ServerSettings(http=Address("127.0.0.1", 0), grpc=Address("127.0.0.1", 0)),
            clock=clock,
            engine_settings=Settings(served_tick_ms=TICK_MS),
        )
        await server.start()
        try:
            return await _with_server(server, count)
        finally:
            await server.stop()


async def _with_server(server: Server, count: int) -> dict[str, float]:
    idle_ms = await _idle_ms()
    before_kib = _kib()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.served_worker"),
        *(str(server.grpc_address), str(count)),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parent.parent,
    )
    assert process.stdout is not None
    try:
        address = (await process.stdout.readline()).decode().strip()
        tally = server.engine.seats.tally
        for _ in range(WAITS_MAX):
            if tally.results["ok"] >= count:
                break
            await asyncio.sleep(0.1)
        await asyncio.sleep(SETTLE_S)
        calls, began = tally.results["ok"], time.process_time()
        await asyncio.sleep(SECONDS)
        used_ms = (time.process_time() - began) * 1_000 - idle_ms * SECONDS
        called = tally.results["ok"] - calls
        kib = (_kib() - before_kib) / count
        late = tally.late_count
        await server.engine.seats.leave()
        bare_ms = await _bare_ms(address, count, idle_ms)
    finally:
        process.terminate()
        await process.wait()
    return {
        f"cpu_ms_{count}": used_ms / called,
        f"bare_cpu_ms_{count}": bare_ms,
        f"kib_{count}": kib,
        f"late_ticks_{count}": float(late),
    }


async def _idle_ms() -> float:
    """Return what the server uses in a second without workers."""
    await asyncio.sleep(1)
    began = time.process_time()
    await asyncio.sleep(2)
    return (time.process_time() - began) * 1_000 / 2


async def _bare_ms(address: str, count: int, idle_ms: float) -> float:
    """Return the cost of a bare call, as many in a second, each over its own channel."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(address, options=options) for _ in range(count)]
    calls = [
        each.unary_unary(
            METHOD,
            request_serializer=pb.HeartbeatRequest.SerializeToString,
            response_deserializer=pb.HeartbeatResponse.FromString,
        )
        for each in channels
    ]
    made = 0

    async def keep_calling(number: int) -> None:
        nonlocal made
        await asyncio.sleep(number / count)
        while True:
            await calls[number](pb.HeartbeatRequest(worker_id="w" * 36, call_no=1), timeout=10)
            made += 1
            await asyncio.sleep(TICK_MS / 1_000)

    tasks = [asyncio.ensure_future(keep_calling(number)) for number in range(count)]
    await asyncio.sleep(SETTLE_S)
    before, began = made, time.process_time()
    await asyncio.sleep(SECONDS)
    used_ms = (time.process_time() - began) * 1_000 - idle_ms * SECONDS
    called = made - before
    for each in tasks:
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.gather(*(each.close() for each in channels))
    return used_ms / called


def _kib() -> float:
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
