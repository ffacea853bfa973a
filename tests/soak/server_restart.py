"""The server goes away while tasks run, killed or standing still: nobody notices."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from tests.bounds import WORK_S
from tests.polling import eventually
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, on_both_stores, spotless
from tests.wire import checker
from tests.wire.client import make_task
from tests.wire.journal import merge
from tests.wire.proxy import Proxy
from tests.wire.server import ServerProcess
from tests.wire.stage import Stage

MODES: Final = ("session", "poll", "session", "poll")
# What remains to run when the server is back: workers find it, and nothing is judged too early.
REST_S: Final = 2.0


class Size(msgspec.Struct, frozen=True):
    """How many tasks run, and for how long the server is away."""

    tasks: int
    away_s: float
    scale: Scale


SIZES: Final = {False: Size(100, 20.0, SCALES[False]), True: Size(20, 3.0, SCALES[True])}
Disturb = Callable[[Stage, ServerProcess, Proxy, float], Awaitable[None]]


async def run(small: bool) -> list[Result]:
    """Kill the server for longer than the leases of sessions, and start it again."""
    size = SIZES[small]

    async def scene(stage: Stage, dialect: str) -> list[Result]:
        name = f"server restart, {dialect}: killed for {size.away_s:g} s"
        return await play(stage, size, name, _kill_and_restart)

    return await on_both_stores(size.scale, scene)


async def _kill_and_restart(
    stage: Stage, server: ServerProcess, proxy: Proxy, away_s: float
) -> None:
    await server.kill()
    await asyncio.sleep(away_s)
    proxy.target = (await stage.server()).grpc


async def play(stage: Stage, size: Size, name: str, disturb: Disturb) -> list[Result]:
    """Disturb the server while tasks run: some end meanwhile, some afterwards."""
    server = await stage.server()
    # The address of the service stays, as it does behind a load balancer.
    proxy = await stage.proxy(server.grpc)
    client = await stage.client(proxy.address)
    slots = -(-size.tasks // len(MODES))
    workers = await asyncio.gather(
        *(stage.worker(proxy.address, mode=mode, slots=slots) for mode in MODES)
    )
    rest_s = max(size.scale.session_lease_s, size.scale.poll_lease_s) + REST_S
    lengths_s = [size.away_s / 2, size.away_s + rest_s]
    tasks = [make_task(round(lengths_s[n % 2] * 1_000)) for n in range(size.tasks)]
    ids = await client.enqueue(tasks)
    tails = [each.tail for each in workers]
    await eventually(
        lambda: sum(len(tail.of("start")) for tail in tails) >= size.tasks,
        "the start of all tasks",
        within_s=WORK_S,
    )
    await disturb(stage, server, proxy, size.away_s)
    await client.wait_all(ids, rest_s + WORK_S)
    lines = merge(tails)
    complaints = checker.check_once(lines, ids)
    ended = await client.get_all(ids)
    complaints += checker.check_succeeded(ended)
    complaints += checker.check_accepted(lines)
    registered = [line for line in lines if line.event == "registered"]
    judged = checker.check_calm(lines)
    return [
        spotless(
            f"{name}: {size.tasks} tasks that ran meanwhile",
            "none ended or started again",
            f"{len(ended)} ended, at most with attempt {max(task.attempt for task in ended)}",
            complaints,
        ),
        Result(
            f"{name}: the workers",
            "nobody judged, all keep their ids",
            f"{len(workers)} workers, {len(registered)} registrations, {len(judged)} judged",
            held=not judged and len(registered) == len(workers),
            details=tuple(judged),
        ),
    ]
