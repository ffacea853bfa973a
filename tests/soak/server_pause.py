"""The server stands still for two leases: when it goes on, it must not judge by its own sleep."""

from __future__ import annotations

import asyncio
from typing import Final

from tests.soak import server_restart
from tests.soak.result import Result
from tests.soak.scene import SCALES, on_both_stores
from tests.soak.server_restart import Size
from tests.wire.proxy import Proxy
from tests.wire.server import ServerProcess
from tests.wire.stage import Stage

LEASES: Final = 2
SIZES: Final = {
    small: Size(tasks, LEASES * max(scale.session_lease_s, scale.poll_lease_s), scale)
    for small, tasks, scale in ((False, 100, SCALES[False]), (True, 20, SCALES[True]))
}


async def run(small: bool) -> list[Result]:
    """Stop the server with SIGSTOP while tasks run."""
    size = SIZES[small]

    async def scene(stage: Stage, dialect: str) -> list[Result]:
        name = f"server pause, {dialect}: SIGSTOP for {size.away_s:g} s"
        return await server_restart.play(stage, size, name, _pause)

    return await on_both_stores(size.scale, scene)


async def _pause(stage: Stage, server: ServerProcess, proxy: Proxy, away_s: float) -> None:
    del stage, proxy
    server.process.pause()
    await asyncio.sleep(away_s)
    server.process.go_on()
