"""The engine of ``open_engine`` for tests without an event loop.

>>> with open_sync_engine() as engine, engine.client() as client, engine.worker([remind]):
...     handle = client.enqueue(remind.with_options(delay="3d"), "ann@example.org")
...     engine.advance("3d")
...     handle.result()
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from datetime import datetime
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, Unpack

from tenure.sdk.client import RunHandle
from tenure.sdk.duration import Duration
from tenure.sdk.sync_client import SyncClient, SyncRunHandle
from tenure.sdk.worker.worker import Worker, WorkerOptions
from tenure.sdk.workflow.definition import Workflow
from tenure.testing.engine import PATIENCE, TestEngine
from tenure.testing.host import HostThread
from tenure.testing.survival import assert_survives

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class SyncTestEngine:
    """A server for one test without an event loop; workers run on one in a thread."""

    # pytest must not collect it as a class of tests.
    __test__ = False

    def __init__(self, *, start_at: datetime | None = None, patience: Duration = PATIENCE) -> None:
        """Prepare; entering it starts the server. See ``TestEngine`` for the parameters."""
        self._engine = TestEngine(start_at=start_at, patience=patience)
        self._host: HostThread | None = None
        self._clients: list[SyncClient] = []
        self._own_client: SyncClient | None = None

    def __enter__(self) -> Self:
        self._engine.open()
        self._host = HostThread("tenure-test-loop")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._host is not None
        for client in self._clients:
            client.close()
        self._host.stop()
        self._engine.close()

    @property
    def target(self) -> str:
        """The gRPC address of the server, for your own clients and workers."""
        return self._engine.target

    def now(self) -> datetime:
        """Return the server's time."""
        return self._engine.now()

    def advance(self, duration: Duration) -> None:
        """Let time pass for the server, and return when everything that came due was handled."""
        self._run(self._engine.advance(duration))

    def advance_until(self, wait: Callable[[], T], *, most: Duration = "365d") -> T:
        """Let time pass until a call returns, such as ``handle.result``; return its result."""
        return self._run(self._engine.advance_until(asyncio.to_thread(wait), most=most))

    def client(self, **options: object) -> SyncClient:
        """Return a client; ``options`` are those of ``SyncClient``, such as ``namespace``."""
        client = self._engine.connect(SyncClient, **options)
        self._clients.append(client)
        return client

    def start(
        self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> SyncRunHandle[R]:
        """Start a run with a client of its own; a worker of this engine has to run it."""
        if self._own_client is None:
            self._own_client = self.client()
        return self._own_client.start(workflow, *args, **kwargs)

    def assert_survives(
        self,
        workflow: Workflow[..., R],
        /,
        *args: object,
        code: Iterable[object] = (),
        act: Callable[[RunHandle[R]], Awaitable[object]] | None = None,
        key: Callable[[R], object] | None = None,
        **kwargs: object,
    ) -> R:
        """Run a workflow and kill its worker at every point, as ``assert_survives`` does.

        ``code`` are the activities and workflows that it calls. ``act`` gets the asynchronous
        handle of the run and has to return something to await, such as
        ``lambda run: run.signal(approve, answer)``.
        """
        survives = assert_survives(
            workflow, *args, engine=self._engine, code=code, act=act, key=key, **kwargs
        )
        return self._run(survives)

    @contextlib.contextmanager
    def worker(self, code: Iterable[object], **options: Unpack[WorkerOptions]) -> Iterator[Worker]:
        """Run a worker of activities and workflows until the block ends.

        ``options`` are those of ``Worker``.
        """
        running = self._engine.worker(code, **options)
        worker = self._run(running.__aenter__())
        try:
            yield worker
        finally:
            self._run(running.__aexit__(None, None, None))

    def create_namespace(self, name: str) -> None:
        """Create a namespace beside ``default``."""
        self._run(self._engine.create_namespace(name))

    def kill_worker(self, worker: Worker) -> None:
        """Let a worker of this engine die, as with ``kill -9``."""
        self._run(self._engine.kill_worker(worker))

    def lose_next_reply(self, peer: Worker | SyncClient) -> None:
        """Lose the next answer of the server to a worker or client of this engine."""
        self._engine.lose_next_reply(peer)

    @contextlib.contextmanager
    def partition(self, peer: Worker | SyncClient) -> Iterator[None]:
        """Let nothing pass between the server and a worker or client inside the block."""
        cut = self._engine.partition(peer)
        self._run(cut.__aenter__())
        try:
            yield
        finally:
            self._run(cut.__aexit__(None, None, None))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._host is None:
            work.close()
            raise RuntimeError("The engine is not open: with open_sync_engine() as engine: …")
        return self._host.submit(work).result()


def open_sync_engine(
    *, start_at: datetime | None = None, patience: Duration = PATIENCE
) -> SyncTestEngine:
    """Return a server for ``with``; its clock stands still until the test moves it."""
    return SyncTestEngine(start_at=start_at, patience=patience)
