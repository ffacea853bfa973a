"""A real server inside a test, with a clock that the test moves.

>>> async with open_engine() as engine, engine.client() as client:
...     async with engine.worker([remind]):
...         handle = await client.enqueue(remind.with_options(delay="3d"), "ann@example.org")
...         await engine.advance("3d")
...         await handle.result()

Everything but the clock is real: the engine, the gRPC edge on a port of loopback, a worker with a
connection thread of its own. The server runs in its own thread, so a test that blocks its event
loop does not block the server. See ``timeline`` for how time passes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from datetime import datetime
from types import TracebackType
from typing import Final, ParamSpec, Self, TypeVar, Unpack

from tenure.sdk.client import Client, RunHandle
from tenure.sdk.duration import Duration, duration_ms
from tenure.sdk.failure import WorkerEvicted, WorkerSuperseded
from tenure.sdk.transport.target import DEFAULT_NAMESPACE
from tenure.sdk.worker.worker import Worker, WorkerOptions
from tenure.sdk.workflow import registry
from tenure.sdk.workflow.definition import Workflow
from tenure.testing.host import hush_grpc
from tenure.testing.stage import NOTHING_DUE, Stage, abort

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
PATIENCE: Final = "1s"
_REGISTER_SECONDS_MAX: Final = 20.0
_LOOK_SECONDS: Final = 0.002
_ARRIVAL_SECONDS: Final = 0.05
_IDLE_SECONDS: Final = 0.02
# Long enough for an answer that a busy machine brings late: only a test that fails waits for it.
_IDLE_SECONDS_MAX: Final = 2.0


class TestEngine:
    """A server for one test. ``open_engine`` makes it, and the fixture ``tenure_engine``."""

    # pytest must not collect it as a class of tests.
    __test__ = False

    def __init__(self, *, start_at: datetime | None = None, patience: Duration = PATIENCE) -> None:
        """Prepare; entering it starts the server.

        Its time begins at ``start_at``, by default about now. ``patience`` is how long, in real
        time, the engine waits for running code before time goes on.
        """
        self._stage = Stage(start_at=start_at, patience=patience)
        self._clients: list[Client] = []
        self._own_client: Client | None = None
        self._own_loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for client in self._clients:
            await client.close()
        self.close()

    def open(self) -> None:
        """Start the server, where there is no ``async with``."""
        self._stage.start()

    def close(self) -> None:
        """Stop the server."""
        self._stage.stop()

    @property
    def target(self) -> str:
        """The gRPC address of the server, for your own clients and workers."""
        return str(self._stage.address)

    # -- Time

    def now(self) -> datetime:
        """Return the server's time."""
        return self._stage.now()

    async def advance(self, duration: Duration) -> None:
        """Let time pass for the server, and return when everything that came due was handled.

        Delays, retries, timeouts and the ends of leases happen at their instants, in their order.
        Live workers keep their leases.
        """
        ms = duration_ms(duration, "duration")
        await asyncio.wrap_future(self._stage.call(self._stage.advance(ms)))

    async def advance_until(self, result: Awaitable[T], *, most: Duration = "365d") -> T:
        """Let time pass until something is done, such as ``client.run(…)``; return its result.

        Raises ``TimeoutError`` if it is not done and nothing more is due within ``most``. Time
        begins to pass when a request that is on its way has had a moment to arrive; where that
        matters, enqueue first, and wait for ``handle.result()``.
        """
        waiting = asyncio.ensure_future(result)
        left = self._stage.countdown(most)
        idle_s = 0.0
        try:
            await asyncio.wait([waiting], timeout=_ARRIVAL_SECONDS)
            while not waiting.done():
                is_due = await asyncio.wrap_future(self._stage.call(left.step()))
                # What is waited for may be on its way, and make something due when it arrives.
                idle_s = 0.0 if is_due else idle_s + _IDLE_SECONDS
                if idle_s > max(_IDLE_SECONDS_MAX, self._stage.patience_s):
                    raise TimeoutError(NOTHING_DUE)
                await asyncio.wait([waiting], timeout=0 if is_due else _IDLE_SECONDS)
            return await waiting
        finally:
            waiting.cancel()

    # -- Who talks to the server

    def client(self, **options: object) -> Client:
        """Return a client; ``options`` are those of ``Client``, such as ``namespace``."""
        client = self.connect(Client, **options)
        self._clients.append(client)
        return client

    def connect(self, kind: Callable[..., T], **options: object) -> T:
        """Make a client or worker whose connection can be disturbed by the test."""
        hush_grpc()
        line, address = self._stage.new_line()
        # The namespace that the environment names is one of another server.
        made = kind(address, **{"namespace": DEFAULT_NAMESPACE, **options})
        self._stage.give(line, made)
        return made

    async def start(
        self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> RunHandle[R]:
        """Start a run with a client of its own; a worker of this engine has to run it.

        >>> async with engine.worker([drip]):
        ...     run = await engine.start(drip, user)
        ...     await engine.advance("28d")
        """
        loop = asyncio.get_running_loop()
        if self._own_client is None or self._own_loop is not loop:
            self._own_client, self._own_loop = self.client(), loop
        return await self._own_client.start(workflow, *args, **kwargs)

    @contextlib.asynccontextmanager
    async def worker(
        self, code: Iterable[object], **options: Unpack[WorkerOptions]
    ) -> AsyncIterator[Worker]:
        """Run a worker of activities and workflows until the block ends.

        ``options`` are those of ``Worker``. At the end it is drained; what does not end within the
        patience is handed back.
        """
        hush_grpc()
        line, address = self._stage.new_line()
        options.setdefault("namespace", DEFAULT_NAMESPACE)
        activities, workflows = registry.split(code)
        worker = Worker(address, activities=activities, workflows=workflows, **options)
        self._stage.give(line, worker)
        running = asyncio.ensure_future(worker.run(handle_signals=False))
        try:
            await _until_registered(worker, running)
            yield worker
        except BaseException:
            worker.request_shutdown("1ms")
            raise
        finally:
            if line.is_dead:
                abort(worker)
            else:
                worker.request_shutdown(self._stage.patience_s)
            await _end(running)

    async def create_namespace(self, name: str) -> None:
        """Create a namespace beside ``default``."""
        await asyncio.wrap_future(self._stage.call(self._stage.create_namespace(name)))

    # -- Faults

    async def kill_worker(self, worker: Worker) -> None:
        """Let a worker of this engine die, as with ``kill -9``.

        Its sockets close without a goodbye, and nothing that its code does arrives any more. The
        server notices, waits for the grace of three seconds, and gives its tasks to others: let
        that time pass with ``advance``. The code itself goes on until the block of the worker
        ends, because a test cannot kill a part of its own process.
        """
        self._stage.line_of(worker)
        await asyncio.wrap_future(self._stage.call(self._stage.kill(worker)))

    def lose_next_reply(self, peer: object) -> None:
        """Lose the next answer of the server to a worker or client of this engine.

        The server has done what was asked; the connection is cut before the answer arrives.
        """
        line = self._stage.line_of(peer)
        self._stage.call(self._stage.lose_next_reply(line)).result()

    @contextlib.asynccontextmanager
    async def partition(self, peer: object) -> AsyncIterator[None]:
        """Let nothing pass between the server and a worker or client inside the block.

        Nobody is told: connections stay open and silent, and go on when the block ends.
        """
        line = self._stage.line_of(peer)
        worker_ids = await asyncio.wrap_future(self._stage.call(self._stage.block(peer, line)))
        try:
            yield
        finally:
            await asyncio.wrap_future(self._stage.call(self._stage.unblock(worker_ids, line)))


def open_engine(*, start_at: datetime | None = None, patience: Duration = PATIENCE) -> TestEngine:
    """Return a server for ``async with``; its clock stands still until the test moves it.

    >>> async with open_engine(start_at=datetime(2026, 3, 1, tzinfo=UTC)) as engine:
    ...     await engine.advance("3d")
    """
    return TestEngine(start_at=start_at, patience=patience)


async def _until_registered(worker: Worker, running: asyncio.Future[None]) -> None:
    async with asyncio.timeout(_REGISTER_SECONDS_MAX):
        while not worker.is_registered:
            if running.done():
                await running
            await asyncio.sleep(_LOOK_SECONDS)


async def _end(running: asyncio.Future[None]) -> None:
    """Wait for the end of a worker; it is not a failure if the test itself has ended it."""
    await asyncio.wait([running])
    with contextlib.suppress(WorkerEvicted, WorkerSuperseded):
        if not running.cancelled():
            running.result()
