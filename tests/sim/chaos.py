"""Makes things go wrong: crashes, stops, cuts, clock jumps, drains, at the rates of the mix."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tenure.core.worker.record import WorkerMode
from tenure.engine.worker import command as c
from tests.sim.client import Client

if TYPE_CHECKING:
    from tests.sim.server import Server
    from tests.sim.worker import WorkerProcess
    from tests.sim.world import World

WORKERS_MAX: Final = 14
# Two opposite jumps within one probe cancel out before any server can notice.
JUMP_PAUSE_MS: Final = 2_000


class Chaos:
    """Draws the moments of faults and their victims."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random("chaos")
        self._operator = Client(world, "operator", "")

    async def run(self) -> None:
        """Let faults happen until cancelled."""
        faults = self._world.faults
        rates: dict[Callable[[], None], float] = {
            self._crash_engine: faults.engine_crash_rate,
            self._stop_engine: faults.engine_stop_rate,
            self._jump: faults.jump_rate,
            self._cut: faults.partition_rate,
            self._crash_worker: faults.worker_crash_rate,
            self._stop_worker: faults.worker_stop_rate,
            self._break_session: faults.session_break_rate + faults.move_rate,
            self._drain: faults.drain_rate,
            self._evict: faults.evict_rate,
            self._supersede: faults.supersede_rate,
            self._mute: faults.mute_rate if self._world.has_served else 0.0,
        }
        total = sum(rates.values())
        if not total:
            return
        while True:
            await asyncio.sleep(self._random.expovariate(total))
            self._random.choices(list(rates), list(rates.values()))[0]()

    async def heal(self) -> None:
        """End all faults that last."""
        world = self._world
        world.network.heal()
        for process in world.workers:
            process.go_on()
        for server in world.servers:
            server.spare()
            server.go_on()
            if not server.is_up:
                await server.start()

    # -- Servers -------------------------------------------------------------------------------

    def _server(self) -> Server:
        return self._random.choice(self._world.servers)

    def _crash_engine(self) -> None:
        server = self._server()
        if server.is_up:
            server.crash_soon()
            self._world.spawn(self._restart(server))

    async def _restart(self, server: Server) -> None:
        await asyncio.sleep(0.3 + 3 * self._random.random())
        if not server.is_up and not self._world.is_healed:
            await server.start()
            self._world.troubled_at_ms = self._world.now_ms

    def _stop_engine(self) -> None:
        server = self._server()
        if server.is_up and not server.is_stopped:
            server.stop()
            self._world.spawn(self._let_server_go_on(server))

    async def _let_server_go_on(self, server: Server) -> None:
        await asyncio.sleep(self._random.random() * self._world.faults.engine_stop_ms / 1000)
        server.go_on()
        self._world.troubled_at_ms = self._world.now_ms

    def _jump(self) -> None:
        """Set the clock by more than a server takes for a hiccup."""
        world = self._world
        if world.now_ms - world.jumped_at_ms < JUMP_PAUSE_MS:
            return
        if self._random.random() < 0.5:
            ms = self._random.randint(1_500, max(1_500, world.faults.jump_ahead_ms))
        else:
            ms = -self._random.randint(1_500, max(1_500, world.faults.jump_back_ms))
        world.note(f"the clock jumps by {ms}")
        world.clock.jump(ms)
        world.jumped_at_ms = world.now_ms
        world.troubled_at_ms = max(world.troubled_at_ms, world.now_ms) + max(0, -ms)

    # -- Workers -------------------------------------------------------------------------------

    def _worker(self) -> WorkerProcess | None:
        there = [each for each in self._world.workers if not each.is_over and each.worker_id]
        return self._random.choice(there) if there else None

    def _cut(self) -> None:
        worker = self._worker()
        if worker is not None:
            ms = self._random.random() * self._world.faults.partition_ms
            for server in self._world.servers:
                if self._random.random() < 0.7:
                    self._world.network.cut(worker.name, server, ms)

    def _mute(self) -> None:
        there = [each for each in self._world.listening.values() if not each.is_over]
        if there:
            ms = self._random.random() * self._world.faults.mute_ms
            self._world.served.mute(self._random.choice(there), ms)

    def _crash_worker(self) -> None:
        worker = self._worker()
        if worker is not None:
            worker.crash()
            self._replace(worker)

    def _replace(self, worker: WorkerProcess) -> None:
        after = 0.2 + 1.5 * self._random.random()
        name = worker.new.name if self._random.random() < 0.5 else ""
        # A new worker may listen where a dead one did.
        address = worker.new.address if after < 1 else ""
        self._world.loop.call_later(after, self._add_worker, name, address)

    def _add_worker(self, name: str = "", address: str = "") -> None:
        there = [each for each in self._world.workers if not each.is_over]
        if not self._world.is_healed and len(there) < WORKERS_MAX:
            self._world.add_worker(name=name, address=address)

    def _stop_worker(self) -> None:
        worker = self._worker()
        if worker is not None and not worker.is_paused:
            worker.pause()
            after = self._random.random() * self._world.faults.worker_stop_ms / 1000
            self._world.loop.call_later(after, worker.go_on)

    def _break_session(self) -> None:
        worker = self._worker()
        if worker is not None and worker.new.mode is WorkerMode.SESSION:
            worker.break_session()

    def _drain(self) -> None:
        """Drain by a signal to the process, or by an operator's command."""
        worker = self._worker()
        if worker is None or worker.worker_id is None:
            return
        if self._random.random() < 0.5:
            worker.drain()
        else:
            command = c.DrainWorker(
                namespace=worker.namespace, worker_id=worker.worker_id, deadline_ms=1_500
            )
            self._world.spawn(self._operator.ask(command))
        self._replace(worker)

    def _evict(self) -> None:
        worker = self._worker()
        if worker is not None and worker.worker_id is not None:
            command = c.EvictWorker(namespace=worker.namespace, worker_id=worker.worker_id)
            self._world.spawn(self._operator.ask(command))
            self._replace(worker)

    def _supersede(self) -> None:
        worker = self._worker()
        if worker is not None and worker.new.name:
            self._world.add_worker(namespace=worker.namespace, name=worker.new.name)
