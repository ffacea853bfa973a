"""Load for the engine as its edges bring it: clients and workers that combine what waits.

What is asked for while a call is in flight goes into the next one. So a caller is one coroutine
with one task, and the engine gets frames, as it does from the client and the sessions of the SDK.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tenure.core.task_record import NewTask, Task
from tenure.core.worker import EndReason
from tenure.engine import command as c
from tenure.engine.engine import Engine


class CombiningClient:
    """Enqueues for many callers; each waits for its own task's result."""

    def __init__(self, engine: Engine, namespace: str) -> None:
        """Start with nothing in flight."""
        self._engine = engine
        self._namespace = namespace
        self._waiting: list[NewTask] = []
        self._results: dict[str, asyncio.Future[None]] = {}
        self._loop = asyncio.get_running_loop()
        self._is_sending = False
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, new: NewTask) -> asyncio.Future[None]:
        """Enqueue a task and return the future of its acknowledged completion."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._results[new.id] = future
        self._waiting.append(new)
        if not self._is_sending:
            self._is_sending = True
            task = self._loop.create_task(self._send())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return future

    async def _send(self) -> None:
        # Whoever is ready to run in this turn of the loop goes into the same frame.
        await asyncio.sleep(0)
        while self._waiting:
            frame, self._waiting = self._waiting[:500], self._waiting[500:]
            await self._engine.submit(
                c.EnqueueTasks(namespace=self._namespace, tasks=tuple(frame)),
            )
        self._is_sending = False

    def done(self, task_id: str) -> None:
        """Let the caller of a completed task go on."""
        self._results.pop(task_id).set_result(None)


class NoOpWorker:
    """A session that completes whatever it gets, in frames."""

    is_open = True

    def __init__(self, engine: Engine, client: CombiningClient, worker_id: str) -> None:
        """Serve one registered worker."""
        self._engine = engine
        self._client = client
        self._worker_id = worker_id
        self._namespace = ""
        self._held: list[c.Finish] = []
        self._wake = asyncio.Event()
        self._output = b"y" * 16

    async def open(self, namespace: str, window: int) -> None:
        """Open the session."""
        self._namespace = namespace
        await self._engine.submit(
            c.OpenSession(
                namespace=namespace,
                worker_id=self._worker_id,
                held=(),
                window=window,
                sink=self,
            ),
        )

    def give(self, tasks: Sequence[Task]) -> None:
        """Take tasks and complete them with the next frame."""
        for task in tasks:
            self._held.append(
                c.Finish(
                    task_id=task.id,
                    attempt=task.attempt,
                    kind=c.FinishKind.SUCCEEDED,
                    output=self._output,
                ),
            )
        self._wake.set()

    async def serve(self) -> None:
        """Report completions until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._held:
                frame, self._held = tuple(self._held[:500]), self._held[500:]
                await self._engine.submit(
                    c.FinishTasks(
                        namespace=self._namespace,
                        worker_id=self._worker_id,
                        items=frame,
                    ),
                )
                for item in frame:
                    self._client.done(item.task_id)

    def cancel(self, refs: Sequence[c.TaskRef]) -> None:
        """Nothing is cancelled here."""

    def stop(self, refs: Sequence[c.TaskRef]) -> None:
        """Nothing is stopped here."""

    def drain(self) -> None:
        """Nothing is drained here."""

    def end(self, reason: EndReason) -> None:
        """Nothing ends here."""
