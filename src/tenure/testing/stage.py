"""A server in a thread of its own, and the connections to it; both engines use it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Coroutine
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from tenure.api.readiness import Readiness
from tenure.api.rpc.server import RpcServer
from tenure.api.setting import Address, ServerSettings
from tenure.core import check
from tenure.engine.access import command as c
from tenure.engine.clock import SystemClock
from tenure.engine.services.child_closing import ChildClosing
from tenure.engine.services.claim_fallback import ClaimFallback
from tenure.engine.services.held_release import HeldRelease
from tenure.engine.services.server_row import ServerTouch
from tenure.sdk.duration import Duration, duration_ms
from tenure.sdk.transport import manual_clock
from tenure.sdk.worker.worker import Worker
from tenure.store.sqlite import SqliteStore
from tenure.store.table import lease as lease_table
from tenure.store.table import worker as worker_table
from tenure.store.transaction import Store, Tx
from tenure.testing import server_log
from tenure.testing.clock import ServerClock
from tenure.testing.host import HostThread
from tenure.testing.line import ClientLine
from tenure.testing.report_watch import ReportWatch, WatchedEngine
from tenure.testing.timeline import SightedDueTasks, Timeline

T = TypeVar("T")
# The server's time stands a little ahead of this machine's. Ids of tasks carry the time of their
# client, and a request that is sent again is taken at once when the first one is not young.
_AHEAD_MS: Final = 60_000
_START_SECONDS_MAX: Final = 30.0
NOTHING_DUE: Final = (
    "Nothing more is due, and the call that you wait for is not done. Is there a worker for it, "
    "and does its code end?"
)
_NOTICE_SECONDS_MAX: Final = 2.0
_LOOK_SECONDS: Final = 0.002
_names = itertools.count(1)


class Countdown:
    """Lets time pass from one instant to the next at which something is due, up to a limit."""

    def __init__(self, timeline: Timeline, clock: ServerClock, most_ms: int) -> None:
        """Begin now."""
        self._timeline = timeline
        self._clock = clock
        self._end_ms = clock.now_ms() + most_ms

    async def step(self) -> bool:
        """Go to the next instant, on the server's loop; False if nothing is due any more."""
        left_ms = self._end_ms - self._clock.now_ms()
        return left_ms > 0 and await self._timeline.step(left_ms)


class Stage:
    """One server with its store in memory and its manual clock; for callers in any thread."""

    def __init__(self, *, start_at: datetime | None, patience: Duration) -> None:
        """Prepare; ``start`` runs it."""
        self.clock = ServerClock(start_at_ms=_start_ms(start_at))
        self.patience_s = duration_ms(patience, "patience") / 1_000
        self.address = Address("127.0.0.1", 0)
        self._host: HostThread | None = None
        self._engine: WatchedEngine | None = None
        self._rpc: RpcServer | None = None
        self._timeline: Timeline | None = None
        self._lines: list[ClientLine] = []
        self._addresses: list[str] = []
        # By identity: whom the engine gave a line.
        self._line_of: dict[int, tuple[object, ClientLine]] = {}
        self._hurt_ids: set[str] = set()

    # -- Start and stop

    def start(self) -> None:
        """Start the server; it answers when this returns."""
        if self._host is not None:
            raise RuntimeError("This engine has been opened already. Make a new one.")
        server_log.attach()
        self._host = HostThread("tenure-test-server")
        try:
            self._host.submit(self._start()).result(_START_SECONDS_MAX)
        except BaseException:
            self._host.stop()
            server_log.detach()
            raise

    async def _start(self) -> None:
        path = f"file:/tenure-test-{next(_names)}?vfs=memdb"
        # On this thread: two connections to a database in memory would block each other.
        store = SqliteStore(path, clock=self.clock.now_ms, inline=True)
        engine = WatchedEngine(
            store,
            clock=self.clock,
            services=[
                SightedDueTasks(),
                HeldRelease(),
                ChildClosing(),
                ClaimFallback(),
                ServerTouch(),
            ],
        )
        # Its buckets would be refilled by a clock that stands still.
        settings = ServerSettings(
            grpc=self.address, registrations_per_s=0, lists_per_s=0, beats_per_s=0
        )
        rpc = RpcServer(engine, settings, Readiness(engine), lambda *_: None)
        await engine.start()
        try:
            self.address = await rpc.start()
        except BaseException:
            await engine.stop()
            raise
        self._engine, self._rpc = engine, rpc
        self._tell_time(str(self.address))
        self._timeline = Timeline(
            engine, self.clock, patience_s=self.patience_s, is_hurt=self._hurt_ids.__contains__
        )

    def stop(self) -> None:
        """Cut all lines and stop the server."""
        host = self._host
        if host is None:
            return
        try:
            host.submit(self._stop()).result(_START_SECONDS_MAX)
        finally:
            host.stop()
            server_log.detach()

    def _tell_time(self, address: str) -> None:
        manual_clock.clocks[address] = self.clock.now_ms
        self._addresses.append(address)

    async def _stop(self) -> None:
        assert self._engine is not None
        assert self._rpc is not None
        for line in self._lines:
            await line.close()
        for address in self._addresses:
            del manual_clock.clocks[address]
        self._engine.end_polls()
        await self._rpc.stop(0)
        await self._engine.stop()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the server's loop."""
        if self._host is None:
            coroutine.close()
            raise RuntimeError("The engine is not open: async with open_engine() as engine: …")
        return self._host.submit(coroutine)

    # -- Time

    def now(self) -> datetime:
        """Return the server's time."""
        return datetime.fromtimestamp(self.clock.now_ms() / 1_000, UTC)

    async def advance(self, ms: int) -> None:
        """Let time pass; on the server's loop."""
        assert self._timeline is not None
        await self._timeline.advance(ms)

    def countdown(self, most: Duration) -> Countdown:
        """Return a way to let time pass step by step, for at most so long."""
        assert self._timeline is not None
        return Countdown(self._timeline, self.clock, duration_ms(most, "most"))

    async def create_namespace(self, name: str) -> None:
        """Create a namespace; on the server's loop."""
        assert self._engine is not None
        await self._engine.submit(c.CreateNamespace(name=check.namespace(name)))

    # -- Lines

    def new_line(self) -> tuple[ClientLine, str]:
        """Open a line to the server; return it with its address."""
        opened: tuple[ClientLine, str] = self.call(self._new_line()).result(_START_SECONDS_MAX)
        return opened

    async def _new_line(self) -> tuple[ClientLine, str]:
        line = ClientLine(self.address.host, self.address.port)
        self._lines.append(line)
        address = await line.open()
        self._tell_time(address)
        return line, address

    def give(self, line: ClientLine, peer: object) -> None:
        """Remember who speaks over a line."""
        self._line_of[id(peer)] = (peer, line)

    def line_of(self, peer: object) -> ClientLine:
        """Return the line of a worker or client that this engine made."""
        found = self._line_of.get(id(peer))
        if found is None:
            message = (
                f"{peer!r} was not made by this engine. Use engine.worker(…) and engine.client(): "
                "only their connections can be disturbed."
            )
            raise ValueError(message)
        return found[1]

    def watch(self, watch: ReportWatch | None) -> None:
        """Show somebody the reports of workers, from any thread."""
        assert self._engine is not None
        self._engine.watch = watch

    def cut(self, worker: Worker) -> None:
        """Cut a worker off for good; on the server's loop."""
        self._hurt_ids.update(worker.worker_ids.values())
        self.line_of(worker).kill()

    async def kill(self, worker: Worker) -> None:
        """Cut a worker off for good, and return when the server knows; on the server's loop."""
        assert self._engine is not None
        self.cut(worker)
        with contextlib.suppress(TimeoutError):
            # A worker that polls has no connection whose end could be seen.
            async with asyncio.timeout(_NOTICE_SECONDS_MAX):
                for worker_id in worker.worker_ids.values():
                    await _until_missed(self._engine.store, worker_id)

    async def block(self, peer: object, line: ClientLine) -> set[str]:
        """Let nothing pass between the server and somebody; on the server's loop.

        Returns the ids under which a worker is known meanwhile.
        """
        line.block()
        worker_ids = set(peer.worker_ids.values()) if isinstance(peer, Worker) else set()
        self._hurt_ids |= worker_ids
        return worker_ids

    async def unblock(self, worker_ids: set[str], line: ClientLine) -> None:
        """Let everything pass again; on the server's loop."""
        line.unblock()
        if not line.is_dead:
            self._hurt_ids -= worker_ids

    async def lose_next_reply(self, line: ClientLine) -> None:
        """Lose the next answer on a line; on the server's loop."""
        line.lose_next_reply()


async def _until_missed(store: Store, worker_id: str) -> None:
    """Wait until the server has noticed that the session of a worker is gone."""

    async def is_trusted(tx: Tx) -> bool:
        leases = await lease_table.read_leases(tx, [worker_id])
        workers = await worker_table.read_workers(tx, [worker_id])
        has_session = any(each.session_no for each in workers)
        return has_session and any(each.suspect_until_ms is None for each in leases)

    while await store.read(is_trusted):  # noqa: ASYNC110 (a row rings no bell)
        await asyncio.sleep(_LOOK_SECONDS)


def abort(worker: Worker) -> None:
    """End a worker whose line is dead, without waiting for a server that it cannot reach."""
    worker._connection.abort()  # noqa: SLF001 (nobody but a test kills a part of its process)


def _start_ms(start_at: datetime | None) -> int:
    if start_at is None:
        return SystemClock().now_ms() + _AHEAD_MS
    if start_at.tzinfo is None:
        raise ValueError("start_at needs a time zone: datetime(2026, 3, 1, tzinfo=UTC)")
    return round(start_at.timestamp() * 1_000)
