"""Load for the engine as its edges bring it: clients and workers that combine what waits.

What is asked for while a call is in flight goes into the next one. So a caller is one coroutine
with one task, and the engine gets frames, as it does from the client and the sessions of the SDK.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from tenure.core.journal.entry import JournalPage
from tenure.core.limits import BULK_ENQUEUE_MAX, STREAM_BYTES_MAX
from tenure.core.task.effect import Stop
from tenure.core.task.record import NewTask, Spec, Task
from tenure.core.worker.record import EndReason, NewWorker, WorkerMode
from tenure.engine.access.command import CreateNamespace
from tenure.engine.clock import SystemClock
from tenure.engine.command import TaskRef
from tenure.engine.engine import Engine
from tenure.engine.service import Job
from tenure.engine.settings import Settings
from tenure.engine.task.command import (
    ConfirmTasks,
    EnqueueTasks,
    Finish,
    FinishKind,
    FinishTasks,
    ItemAnswer,
    Reported,
)
from tenure.engine.worker.command import OpenSession, RegisterWorker, Registration, SessionAnswer
from tenure.store.transaction import Store

NAMESPACE = "bench/default"
QUEUE = "bench"
TYPE = "noop"
INPUT = b"x" * 32
OUTPUT = b"y" * 16
# What the client sends at most with one call, and less than a session reports with one frame.
FRAME_SIZE = BULK_ENQUEUE_MAX
SPEC = Spec(start_to_close_ms=60_000)
CLOCK = SystemClock()


def new_task() -> NewTask:
    """Return a no-op task."""
    return NewTask(id=CLOCK.new_id(), type=TYPE, queue=QUEUE, spec=SPEC, input=INPUT)


async def open_engine(
    store: Store, settings: Settings | None = None, services: Sequence[Job] | None = None
) -> Engine:
    """Start an engine with the benchmark's namespace."""
    engine = Engine(store, clock=CLOCK, settings=settings, services=services)
    await engine.start()
    await engine.submit(CreateNamespace(name=NAMESPACE))
    return engine


async def register(engine: Engine, count: int, mode: WorkerMode) -> list[Registration]:
    """Register workers with a lease that outlasts the benchmark."""
    requests = [
        RegisterWorker(
            namespace=NAMESPACE,
            new=NewWorker(
                instance_key=CLOCK.new_id(),
                queue=QUEUE,
                types=(TYPE,),
                mode=mode,
                lease_ms=600_000,
                slots=10_000,
            ),
        )
        for _ in range(count)
    ]
    registered: list[Registration] = []
    for at in range(0, count, FRAME_SIZE):
        frame = requests[at : at + FRAME_SIZE]
        registered += await asyncio.gather(*(engine.submit(each) for each in frame))
    return registered


def finish(task: Task) -> Finish:
    """Return the successful end of an attempt."""
    return Finish(task_id=task.id, attempt=task.attempt, kind=FinishKind.SUCCEEDED, output=OUTPUT)


class Client(Protocol):
    """Who wants to know that tasks are done."""

    def done(self, items: Sequence[Finish]) -> None:
        """Hear of acknowledged completions."""
        ...


class EnqueueFrames:
    """Enqueues what is asked for in frames, one of them in flight."""

    def __init__(self, engine: Engine, group: asyncio.TaskGroup) -> None:
        """Start with nothing in flight; a failed frame ends ``group``."""
        self._engine = engine
        self._group = group
        self._waiting: list[NewTask] = []
        self._is_sending = False

    def add(self, new: NewTask) -> None:
        """Put a task into the next frame."""
        self._waiting.append(new)
        if not self._is_sending:
            self._is_sending = True
            self._group.create_task(self._send())

    async def _send(self) -> None:
        # Whoever is ready to run in this turn of the loop goes into the same frame.
        await asyncio.sleep(0)
        while self._waiting:
            frame, self._waiting = self._waiting[:FRAME_SIZE], self._waiting[FRAME_SIZE:]
            await self._engine.submit(EnqueueTasks(namespace=NAMESPACE, tasks=tuple(frame)))
        self._is_sending = False


class CombiningClient:
    """Enqueues for many callers; each waits for its own task's result."""

    def __init__(self, frames: EnqueueFrames) -> None:
        """Start with nothing in flight."""
        self._frames = frames
        self._results: dict[str, asyncio.Future[None]] = {}
        self._loop = asyncio.get_running_loop()

    def run(self, new: NewTask) -> asyncio.Future[None]:
        """Enqueue a task and return the future of its acknowledged completion."""
        future = self._results[new.id] = self._loop.create_future()
        self._frames.add(new)
        return future

    def done(self, items: Sequence[Finish]) -> None:
        """Let the callers of completed tasks go on."""
        for item in items:
            self._results.pop(item.task_id).set_result(None)


class RefillingClient:
    """Enqueues a task for each one that is done, so that a queue stays as long as it is."""

    def __init__(self, frames: EnqueueFrames) -> None:
        """Count from the beginning."""
        self._frames = frames
        self.done_count = 0
        self.has_begun = asyncio.Event()

    def done(self, items: Sequence[Finish]) -> None:
        """Count, and put as many tasks at the end of the queue."""
        self.done_count += len(items)
        self.has_begun.set()
        for _ in items:
            self._frames.add(new_task())


class NoOpWorker:
    """A session that completes whatever it gets, in frames, one of them in flight."""

    is_open = True

    room_bytes = STREAM_BYTES_MAX

    def __init__(self, engine: Engine, client: Client, worker_id: str) -> None:
        """Serve one registered worker."""
        self._engine = engine
        self._client = client
        self._worker_id = worker_id
        self._session_no = 0
        self._held: list[Finish] = []
        self._wake = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    async def open(self, window: int) -> None:
        """Open the session."""
        answer: SessionAnswer = await self._engine.submit(
            OpenSession(
                namespace=NAMESPACE, worker_id=self._worker_id, held=(), window=window, sink=self
            )
        )
        self._session_no = answer.worker.session_no

    async def close(self) -> None:
        """Take nothing more, complete what is here, and end the session."""
        self._engine.set_window(self._worker_id, 0)
        # Whatever an earlier batch has dealt was given when a later command is answered.
        await self._engine.submit(
            ConfirmTasks(namespace=NAMESPACE, worker_id=self._worker_id, items=())
        )
        await self._is_idle.wait()
        self.is_open = False
        self._engine.end_session(self._worker_id, self._session_no)

    async def serve(self) -> None:
        """Report completions until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._held:
                frame, self._held = tuple(self._held[:FRAME_SIZE]), self._held[FRAME_SIZE:]
                answers: Sequence[ItemAnswer] = await self._engine.submit(
                    FinishTasks(namespace=NAMESPACE, worker_id=self._worker_id, items=frame)
                )
                refused = [each for each in answers if not isinstance(each, Reported)]
                assert not refused, f"completions were refused: {refused[0]}"
                self._client.done(frame)
            self._is_idle.set()

    def give(self, tasks: Sequence[Task]) -> None:
        """Take tasks and complete them with the next frame."""
        self._held += map(finish, tasks)
        self._is_idle.clear()
        self._wake.set()

    def cancel(self, refs: Sequence[TaskRef]) -> None:
        """Nothing is cancelled here."""

    def stop(self, stops: Sequence[Stop]) -> None:
        """Nothing is stopped here."""

    def page(self, ref: TaskRef, page: JournalPage) -> None:
        """Nothing runs here that has a journal."""

    def drain(self) -> None:
        """Nothing is drained here."""

    def end(self, reason: EndReason) -> None:
        """Nothing ends here."""
