"""The demo of ``make run``: tasks, two workers, one of which is killed, and the recovery.

Everything runs in this process on an embedded store in a temporary folder: the real engine, real
commits, and workers that follow the worker protocol. It ends by itself.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import structlog
from rich.console import Console
from rich.live import Live
from rich.table import Table

from tenure.core.lease import Beat
from tenure.core.task_record import NewTask, Spec, Task
from tenure.core.worker import EndReason, NewWorker, WorkerStatus
from tenure.engine import command as c
from tenure.engine.clock import SystemClock
from tenure.engine.engine import Engine
from tenure.engine.settings import Settings
from tenure.errors import TenureError
from tenure.store import table
from tenure.store.sqlite import SqliteStore

NAMESPACE = "demo/default"
QUEUE = "demo"
TYPE = "resize_image"
TASK_COUNT = 60
WINDOW = 4
TASK_SECONDS = 0.35
LEASE_MS = 3_000
KILL_AFTER_DONE = 18
FRAME_SECONDS = 0.1


class DemoWorker:
    """A worker in a session: it confirms, works, completes and keeps its lease."""

    is_open = True

    def __init__(self, engine: Engine, name: str) -> None:
        """Prepare a worker that is not registered yet."""
        self.name = name
        self.worker_id = ""
        self.shown = "starting"
        self.completed = 0
        self.running: dict[str, asyncio.Task[None]] = {}
        self._engine = engine
        self._session_no = 0
        self._token = 0
        self._interval_ms = 0
        self._beating: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Register, open the session, and begin to beat."""
        clock = self._engine.clock
        new = NewWorker(
            instance_key=clock.new_id(),
            queue=QUEUE,
            types=(TYPE,),
            name=self.name,
            lease_ms=LEASE_MS,
        )
        registered = await self._engine.submit(c.RegisterWorker(namespace=NAMESPACE, new=new))
        self.worker_id = registered.worker.id
        self._token = registered.lease.token
        self._interval_ms = registered.interval_ms
        answer = await self._engine.submit(
            c.OpenSession(
                namespace=NAMESPACE,
                worker_id=self.worker_id,
                held=(),
                window=WINDOW,
                sink=self,
            ),
        )
        self._session_no = answer.worker.session_no
        self.shown = "online"
        self._beating = asyncio.create_task(self._beat())

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            beat = Beat(
                token=self._token,
                server_id=self._engine.server_id,
                total_completed=self.completed,
                active_count=len(self.running),
            )
            renewed, _ = await self._engine.heartbeat(
                c.Heartbeat(namespace=NAMESPACE, worker_id=self.worker_id, beat=beat),
            )
            self._token = renewed.lease.token

    def give(self, tasks: Sequence[Task]) -> None:
        """Start the tasks that were handed out."""
        for task in tasks:
            self.running[task.id] = asyncio.create_task(self._work(task))

    async def _work(self, task: Task) -> None:
        ref = c.TaskRef(task.id, task.attempt)
        await self._engine.submit(
            c.ConfirmTasks(namespace=NAMESPACE, worker_id=self.worker_id, items=(ref,)),
        )
        await asyncio.sleep(TASK_SECONDS)
        done = c.Finish(
            task_id=task.id,
            attempt=task.attempt,
            kind=c.FinishKind.SUCCEEDED,
            output=b'"done"',
        )
        await self._engine.submit(
            c.FinishTasks(namespace=NAMESPACE, worker_id=self.worker_id, items=(done,)),
        )
        self.completed += 1
        del self.running[task.id]

    def kill(self) -> int:
        """Die as with ``kill -9``: no goodbye, only the connection breaks. Return what it held."""
        held = len(self.running)
        self.shown = "killed"
        for task in (*self.running.values(), self._beating):
            if task is not None:
                task.cancel()
        self._engine.lose_session(NAMESPACE, self.worker_id, self._session_no)
        return held

    async def is_offline(self) -> bool:
        """Ask the store whether the server has judged this worker."""
        (worker,) = await self._engine.store.read(
            lambda tx: table.read_workers(tx, [self.worker_id]),
        )
        return worker.status is WorkerStatus.OFFLINE

    async def leave(self) -> None:
        """Say goodbye."""
        if self._beating is not None:
            self._beating.cancel()
        await self._engine.submit(
            c.DeregisterWorker(namespace=NAMESPACE, worker_id=self.worker_id),
        )
        self.shown = "offline (deregistered)"

    def cancel(self, refs: Sequence[c.TaskRef]) -> None:
        """Nothing is cancelled in the demo."""

    def stop(self, refs: Sequence[c.TaskRef]) -> None:
        """Nothing is taken away in the demo."""

    def drain(self) -> None:
        """Nothing is drained in the demo."""

    def end(self, reason: EndReason) -> None:
        """Show that the server has judged this worker."""
        self.shown = f"offline ({reason.value})"


class Screen:
    """Live progress on a terminal, plain lines elsewhere."""

    def __init__(self, engine: Engine, workers: Sequence[DemoWorker]) -> None:
        """Show these workers and count what is finished."""
        self.console = Console(highlight=False)
        self.done = 0
        self.repeated = 0
        self._workers = workers
        engine.on_finished(self._finished)

    def _finished(self, task: Task) -> None:
        self.done += 1
        self.repeated += task.attempt > 1

    def say(self, text: str) -> None:
        """Tell what happens."""
        self.console.print(text)

    def table(self) -> Table:
        """Return the present state as a table."""
        bar = "█" * (30 * self.done // TASK_COUNT)
        table = Table("worker", "status", "holds", "completed", min_width=60)
        for worker in self._workers:
            holds = str(len(worker.running)) if worker.shown == "online" else "-"
            table.add_row(worker.name, worker.shown, holds, str(worker.completed))
        table.caption = f"{self.done}/{TASK_COUNT} tasks {bar}"
        return table


async def run(folder: Path) -> bool:
    """Show a task's life with a worker that dies; return whether every task was done once."""
    clock = SystemClock()
    store = SqliteStore(str(folder / "demo.db"), clock=clock.now_ms)
    settings = Settings(lease_least_ms=500, suspect_grace_ms=1_500, judge_ms=250)
    async with Engine(store, clock=clock, settings=settings) as engine:
        workers = [DemoWorker(engine, "anna"), DemoWorker(engine, "bert")]
        screen = Screen(engine, workers)
        await _enqueue(engine)
        screen.say(f"{TASK_COUNT} tasks are enqueued and on disk. Workers anna and bert start.")
        for worker in workers:
            await worker.start()
        with Live(console=screen.console, auto_refresh=False, transient=True) as live:
            await _watch(engine, screen, workers, live)
        await workers[1].leave()
        screen.console.print(screen.table())
        screen.say(
            f"All {screen.done} tasks are done, each once; {screen.repeated} that anna held "
            "ran again on bert.",
        )
        return screen.done == TASK_COUNT


async def _enqueue(engine: Engine) -> None:
    await engine.submit(c.CreateNamespace(name=NAMESPACE))
    spec = Spec(start_to_close_ms=60_000)
    tasks = tuple(
        NewTask(id=engine.clock.new_id(), type=TYPE, queue=QUEUE, spec=spec, input=b"{}")
        for _ in range(TASK_COUNT)
    )
    await engine.submit(c.EnqueueTasks(namespace=NAMESPACE, tasks=tasks))


async def _watch(
    engine: Engine,
    screen: Screen,
    workers: Sequence[DemoWorker],
    live: Live,
) -> None:
    """Draw until everything is done; kill a worker in the middle and say when it is judged."""
    anna = workers[0]
    killed_at_ms = 0
    while screen.done < TASK_COUNT:
        await asyncio.sleep(FRAME_SECONDS)
        if not killed_at_ms and screen.done >= KILL_AFTER_DONE:
            killed_at_ms = engine.clock.monotonic_ms()
            held = anna.kill()
            screen.say(f"{screen.done:3d} done. anna is killed while it holds {held} tasks.")
        elif killed_at_ms and anna.shown == "killed" and await anna.is_offline():
            seconds = (engine.clock.monotonic_ms() - killed_at_ms) / 1000
            anna.shown = "offline"
            screen.say(
                f"{screen.done:3d} done. anna is judged after {seconds:.1f} s; bert goes on."
            )
        if screen.console.is_terminal:
            live.update(screen.table(), refresh=True)


def main() -> int:
    """Run the demo in a temporary folder."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    with tempfile.TemporaryDirectory(prefix="tenure-demo-") as folder:
        try:
            is_complete = asyncio.run(run(Path(folder)))
        except TenureError as error:
            Console(stderr=True).print(f"The demo failed: {error}")
            return 1
        except KeyboardInterrupt:
            return 130
    return 0 if is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
