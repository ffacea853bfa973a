"""An engine in a process of its own, with producers and claimers inside, made to be killed.

Started as ``python -m tests.chaos.engine_process``. It prints ``ready`` once it serves, logs each
acknowledged operation to its journal, and ends gracefully on SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import signal
from pathlib import Path
from typing import Any, Final, cast

import structlog

from tenure.core.task.record import NewTask, Spec, Task
from tenure.core.worker.lease import Beat
from tenure.core.worker.record import NewWorker, WorkerMode
from tenure.engine.access.command import CreateNamespace
from tenure.engine.clock import SystemClock
from tenure.engine.command import AnyCommand, TaskRef
from tenure.engine.engine import Engine
from tenure.engine.settings import Settings
from tenure.engine.task.command import (
    ClaimTasks,
    ConfirmTasks,
    EnqueueTasks,
    Finish,
    FinishKind,
    FinishTasks,
)
from tenure.engine.worker.command import Heartbeat, RegisterWorker, Registration
from tenure.errors import (
    AlreadyExists,
    RateLimited,
    Rejection,
    TenureError,
    TokenMismatch,
    Unavailable,
    WorkerInactive,
)
from tenure.store.postgres import PostgresStore
from tenure.store.sqlite import SqliteStore
from tenure.store.transaction import Store
from tests.chaos.journal import Done, Journal

NAMESPACE: Final = "chaos/default"
QUEUE: Final = "default"
TYPE: Final = "noop"
# What a killed process held comes back by its delivery check or its timeout.
SPEC: Final = Spec(start_to_close_ms=4_000, delivery_timeout_ms=1_500)
LEASE_MS: Final = 6_000
OUTSTANDING_MAX: Final = 500
PAUSE_S: Final = 0.02


def open_store(url: str) -> Store:
    """Open a file of SQLite or a database of PostgreSQL."""
    if url.startswith("sqlite:"):
        return SqliteStore(url.removeprefix("sqlite:"), clock=SystemClock().now_ms)
    return PostgresStore(url)


class Load:
    """Producers and claimers on one engine, with a chance of every kind of nuisance."""

    def __init__(self, engine: Engine, journal: Journal, seed: int) -> None:
        self._engine = engine
        self._journal = journal
        self._random = random.Random(seed)
        self._clock = SystemClock()
        self._tokens: dict[str, int] = {}
        self._outstanding = 0
        self.is_stopping = False

    async def ask(self, command: AnyCommand) -> Any:
        """Ask until somebody answers; ``None`` once this process stops."""
        while True:
            try:
                return await self._engine.submit(command)
            except (Unavailable, RateLimited):
                if self.is_stopping:
                    return None
                await asyncio.sleep(PAUSE_S)
                if isinstance(command, EnqueueTasks) and not command.is_resend:
                    command = EnqueueTasks(
                        namespace=command.namespace, tasks=command.tasks, is_resend=True
                    )

    async def produce(self) -> None:
        """Enqueue tasks, as many as are done."""
        while not self.is_stopping:
            if self._outstanding > OUTSTANDING_MAX:
                await asyncio.sleep(PAUSE_S)
                continue
            count = self._random.randint(1, 5)
            new = tuple(
                NewTask(id=self._clock.new_id(), type=TYPE, queue=QUEUE, spec=SPEC)
                for _ in range(count)
            )
            answer = await self.ask(EnqueueTasks(namespace=NAMESPACE, tasks=new))
            for each in answer or ():
                self._journal.enqueued(each.task_id)
                self._outstanding += 1

    async def claim(self) -> None:
        """Claim and finish tasks as one worker after the other."""
        while not self.is_stopping:
            worker_id = await self._register()
            try:
                while not self.is_stopping:
                    await self._work(worker_id)
            except WorkerInactive:
                self._tokens.pop(worker_id, None)

    async def _register(self) -> str:
        new = NewWorker(
            instance_key=self._clock.new_id(),
            queue=QUEUE,
            types=(TYPE,),
            mode=WorkerMode.POLL,
            lease_ms=LEASE_MS,
        )
        answer = await self.ask(RegisterWorker(namespace=NAMESPACE, new=new))
        if answer is None:
            return ""
        worker_id = cast("Registration", answer).worker.id
        self._tokens[worker_id] = 1
        return worker_id

    async def _work(self, worker_id: str) -> None:
        command = ClaimTasks(
            namespace=NAMESPACE,
            worker_id=worker_id,
            queue=QUEUE,
            types=frozenset({TYPE}),
            max_tasks=self._random.randint(1, 4),
            wait_ms=200,
        )
        for task in await self.ask(command) or ():
            chance = self._random.random()
            if chance < 0.01:
                continue  # Forgotten: its delivery check brings it back.
            if chance < 0.2:
                refs = (TaskRef(task.id, task.attempt),)
                await self.ask(ConfirmTasks(namespace=NAMESPACE, worker_id=worker_id, items=refs))
            if chance > 0.97:
                await self._finish(worker_id, task, FinishKind.RELEASED)
                continue
            await self._finish(worker_id, task, FinishKind.SUCCEEDED)
            if chance > 0.9:
                # A second, different completion of the same attempt must never be taken.
                await self._finish(worker_id, task, FinishKind.SUCCEEDED)

    async def _finish(self, worker_id: str, task: Task, kind: FinishKind) -> None:
        is_success = kind is FinishKind.SUCCEEDED
        output = f"{worker_id[-12:]}-{self._random.getrandbits(40):x}" if is_success else ""
        item = Finish(
            task_id=task.id,
            attempt=task.attempt,
            kind=kind,
            output=output.encode() if is_success else None,
        )
        command = FinishTasks(namespace=NAMESPACE, worker_id=worker_id, items=(item,))
        answers = await self.ask(command)
        if answers and not isinstance(answers[0], Rejection) and is_success:
            self._journal.done(Done(task.id, task.attempt, output))
            self._outstanding -= 1

    async def beat(self) -> None:
        """Keep the leases of all workers here."""
        while not self.is_stopping:
            await asyncio.gather(*(self._beat(each) for each in list(self._tokens)))
            self._journal.sync()
            await asyncio.sleep(0.5)

    async def _beat(self, worker_id: str) -> None:
        beat = Beat(token=self._tokens[worker_id], server_id=self._engine.server_id)
        try:
            command = Heartbeat(namespace=NAMESPACE, worker_id=worker_id, beat=beat)
            renewed = await self._engine.submit(command)
            self._tokens[worker_id] = renewed.lease.token
        except TokenMismatch as mismatch:
            self._tokens[worker_id] = int(mismatch.fields["current_token"])
        except WorkerInactive:
            self._tokens.pop(worker_id, None)
        except TenureError:
            pass


async def serve(options: argparse.Namespace) -> None:
    """Run the load until SIGTERM."""
    settings = Settings(lease_least_ms=500)
    journal = Journal(Path(options.journal))
    engine = Engine(open_store(options.store), clock=SystemClock(), settings=settings)
    async with engine:
        load = Load(engine, journal, options.seed)
        with contextlib.suppress(AlreadyExists):
            await load.ask(CreateNamespace(name=NAMESPACE))
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, lambda: setattr(load, "is_stopping", True))
        print("ready", flush=True)  # noqa: T201 (the parent waits for it)
        async with asyncio.TaskGroup() as group:
            group.create_task(load.beat())
            for _ in range(options.claimers):
                group.create_task(load.claim())
            for _ in range(options.producers):
                group.create_task(load.produce())


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", required=True)
    parser.add_argument("--journal", required=True)
    parser.add_argument("--claimers", type=int, default=10)
    parser.add_argument("--producers", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
