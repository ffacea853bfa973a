"""The parts of one campaign: starts them, kills them as planned, and starts them again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec

from tests.polling import eventually
from tests.postgres import PostgresServer
from tests.soak.campaign.history import Kill, Part
from tests.soak.campaign.plan import PlannedKill
from tests.soak.sdk_scene import SdkWorker
from tests.wire.proxy import Proxy
from tests.wire.server import ServerProcess
from tests.wire.stage import Stage

ACTIVITIES: Final = "tests.soak.campaign.activity"
PROCESSES: Final = 2
# How long a child that runs something is looked for.
CHILD_S_MAX: Final = 5.0
DEAD_S_MAX: Final = 10.0
REGISTERED: Final = "Registered as"


class Parts:
    """Servers, each behind an address that stays, the workers that know all of them, the store."""

    def __init__(self, stage: Stage, database: PostgresServer | None, slots: int) -> None:
        self._stage = stage
        self._database = database
        self._slots = slots
        # A server that starts needs the database.
        self._store_lock = asyncio.Lock()
        self._servers: list[ServerProcess | None] = []
        self._proxies: list[Proxy] = []
        self._workers: list[SdkWorker | None] = []
        self._dead_children: set[_Child] = set()
        # Also those that are gone, for what they wrote.
        self.all_workers: list[SdkWorker] = []
        self.kills: list[Kill] = []
        self.complaints: list[str] = []

    @property
    def addresses(self) -> list[str]:
        return [each.address for each in self._proxies]

    async def start(self, *, servers: int, workers: int) -> None:
        for _ in range(servers):
            server = await self._stage.server()
            self._servers.append(server)
            self._proxies.append(await self._stage.proxy(server.grpc))
        self._workers = [None] * workers
        await asyncio.gather(*map(self._start_worker, range(workers)))

    async def play(self, plan: list[PlannedKill]) -> None:
        """Kill as planned; return when everything is back."""
        began_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for planned in plan:
                await asyncio.sleep(max(0.0, began_s + planned.at_s - time.monotonic()))
                for part in planned.parts:
                    group.create_task(self._kill(part, planned))

    async def stop_workers(self) -> None:
        """Let the workers leave; complain of those that do not, or had been given up alive."""
        live = [each for each in self._workers if each is not None]
        codes = await asyncio.gather(
            *(each.process.stop() for each in live), return_exceptions=True
        )
        self.complaints += [f"a worker ended with {code!r}" for code in codes if code != 0]
        self.complaints += [
            "a server has ended by itself"
            for each in self._servers
            if each is None or not each.process.is_running
        ]
        # A worker registers once in its life, unless a server has taken it for dead.
        self.complaints += [
            f"worker {each.process.pid} was taken for dead"
            for each in self.all_workers
            if each.log.count(REGISTERED) > 1
        ]

    async def _kill(self, part: Part, planned: PlannedKill) -> None:
        kill: dict[Part, Callable[[PlannedKill], Awaitable[Kill | None]]] = {
            Part.WORKER: self._kill_worker,
            Part.CHILD: self._kill_child,
            Part.SERVER: self._kill_server,
            Part.DATABASE: self._kill_database,
        }
        killed = await kill[part](planned)
        if killed is not None:
            self.kills.append(killed)

    # -- Workers

    async def _start_worker(self, place: int) -> None:
        turned = [*self.addresses[place % len(self.addresses) :], *self.addresses]
        targets = ",".join(dict.fromkeys(turned))
        worker = await SdkWorker.start(
            self._stage,
            targets,
            slots=self._slots,
            options=("--activities", ACTIVITIES, "--processes", str(PROCESSES)),
        )
        self._workers[place] = worker
        self.all_workers.append(worker)

    async def _kill_worker(self, planned: PlannedKill) -> Kill | None:
        place = _choose(self._workers, planned.choice)
        if place is None:
            return None
        worker, self._workers[place] = self._workers[place], None
        assert worker is not None
        at_s, dead_s = await self._end(worker.process.is_running, worker.process.kill(), "worker")
        await asyncio.sleep(planned.away_s)
        await self._start_worker(place)
        pid = worker.process.pid
        return Kill(Part.WORKER, at_s, dead_s, time.monotonic(), pid)

    async def _kill_child(self, planned: PlannedKill) -> Kill | None:
        """Kill a process in which an activity runs; its worker goes on."""
        child = await self._find_child(planned.choice)
        if child is None:
            return None
        at_s = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
        await eventually(lambda: not child.is_running, "the end of a child", within_s=DEAD_S_MAX)
        dead_s = time.monotonic()
        return Kill(Part.CHILD, at_s, dead_s, dead_s, child.pid)

    async def _find_child(self, choice: float) -> _Child | None:
        deadline_s = time.monotonic() + CHILD_S_MAX
        while time.monotonic() < deadline_s:
            running = {each for worker in self._workers if worker for each in _children(worker)}
            found = sorted(running - self._dead_children)
            if found:
                child = found[int(choice * len(found))]
                self._dead_children.add(child)
                return child
            await asyncio.sleep(0.05)
        return None

    # -- Servers and the database

    async def _kill_server(self, planned: PlannedKill) -> Kill | None:
        place = _choose(self._servers, planned.choice)
        if place is None:
            return None
        server, self._servers[place] = self._servers[place], None
        assert server is not None
        at_s, dead_s = await self._end(server.process.is_running, server.kill(), "server")
        await asyncio.sleep(planned.away_s)
        async with self._store_lock:
            started = await self._stage.server()
        self._servers[place] = started
        self._proxies[place].target = started.grpc
        return Kill(Part.SERVER, at_s, dead_s, time.monotonic(), server.process.pid)

    async def _kill_database(self, planned: PlannedKill) -> Kill | None:
        assert self._database is not None
        async with self._store_lock:
            at_s = time.monotonic()
            await asyncio.to_thread(self._database.stop, "immediate")
            dead_s = time.monotonic()
            await asyncio.sleep(planned.away_s)
            await asyncio.to_thread(self._database.resume)
        return Kill(Part.DATABASE, at_s, dead_s, time.monotonic())

    async def _end(
        self, is_running: bool, killing: Awaitable[None], what: str
    ) -> tuple[float, float]:
        if not is_running:
            self.complaints.append(f"a {what} has ended by itself")
        at_s = time.monotonic()
        await killing
        return at_s, time.monotonic()


def _choose(
    places: list[SdkWorker | None] | list[ServerProcess | None], choice: float
) -> int | None:
    there = [place for place, each in enumerate(places) if each is not None]
    return there[int(choice * len(there))] if there else None


class _Child(msgspec.Struct, frozen=True, order=True):
    """A process that a worker runs an activity in."""

    pid: int
    worker_pid: int

    @property
    def is_running(self) -> bool:
        """Whether this very process is there; another one may get its number."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii")
        except (FileNotFoundError, ProcessLookupError):
            return False
        state, parent = stat.rpartition(")")[2].split()[:2]
        return int(parent) == self.worker_pid and state not in "ZX"


def _children(worker: SdkWorker) -> list[_Child]:
    """Return the children of a worker that run an activity now."""
    worker_pid = worker.process.pid
    running: dict[int, bool] = {}
    for line in worker.tail.lines:
        running[line.pid] = line.event == "start"
    running.pop(worker_pid, None)
    found = [_Child(pid, worker_pid) for pid, is_busy in running.items() if is_busy]
    return [each for each in found if each.is_running]
