"""Runs that are completed, failed, cancelled and terminated at the same moment: one end each."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from tenure.core.journal.entry import EntryBody, EntryKind, NewEntry
from tenure.core.task.record import NewTask, Reason, Spec, Task, TaskKind, TaskState
from tenure.core.task.retry import ErrorCategory, ErrorInfo, RetryPolicy
from tenure.core.worker.record import NewWorker, WorkerMode
from tenure.engine.access.command import CreateNamespace
from tenure.engine.clock import SystemClock
from tenure.engine.command import AnyCommand, TaskRef
from tenure.engine.engine import Engine
from tenure.engine.read import run as run_read
from tenure.engine.run.command import CancelRun, RecordSteps, StartRun, StepReport, TerminateRun
from tenure.engine.task.command import (
    ClaimTasks,
    ConfirmTasks,
    Finish,
    FinishKind,
    FinishTasks,
    Reported,
)
from tenure.engine.worker.command import RegisterWorker
from tenure.errors import TenureError
from tenure.store.postgres import PostgresStore
from tenure.store.sqlite import SqliteStore
from tests.postgres import PostgresServer
from tests.soak.result import Result

NAMESPACE: Final = "soak/default"
QUEUE: Final = "races"
TYPE: Final = "checkout"
SPEC: Final = Spec(kind=TaskKind.WORKFLOW, retry=RetryPolicy(maximum_attempts=1))
COUNTS: Final = {False: 500, True: 20}
OUTPUT: Final = b'"done"'
ERROR: Final = ErrorInfo(ErrorCategory.USER_CODE, "it did not work")
LEASE_MS: Final = 600_000
# Ends as they are asked for, and how the run says that it ended so.
ENDS: Final = ("complete", "fail", "terminate")


async def run(small: bool) -> list[Result]:
    """Race on one server with SQLite, and between two with PostgreSQL."""
    results = []
    for dialect in ("sqlite", "postgres"):
        async with _engines(dialect) as engines:
            results.append(await _Races(engines).play(dialect, COUNTS[small]))
    return results


@asynccontextmanager
async def _engines(dialect: str) -> AsyncIterator[list[Engine]]:
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        if dialect == "sqlite":
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tenure-soak-"))
            store = SqliteStore(str(Path(folder) / "tenure.db"), clock=clock.now_ms)
            engines = [Engine(store, clock=clock)]
        else:
            server = await asyncio.to_thread(PostgresServer.start)
            stack.push_async_callback(asyncio.to_thread, server.close)
            dsn = server.dsn(await asyncio.to_thread(server.create_database))
            engines = [Engine(PostgresStore(dsn), clock=clock) for _ in range(2)]
        for engine in engines:
            await stack.enter_async_context(engine)
        await engines[0].submit(CreateNamespace(name=NAMESPACE))
        yield engines


class _Races:
    """One worker that holds runs, and everybody who ends them."""

    def __init__(self, engines: list[Engine]) -> None:
        self._engines = engines
        self._clock = SystemClock()
        self._random = random.Random(7)
        self._worker_id = ""

    async def play(self, dialect: str, count: int) -> Result:
        new = NewWorker(
            instance_key=self._clock.new_id(),
            queue=QUEUE,
            types=(TYPE,),
            mode=WorkerMode.POLL,
            slots=10,
            lease_ms=LEASE_MS,
        )
        registered = await self._engines[0].submit(RegisterWorker(namespace=NAMESPACE, new=new))
        self._worker_id = registered.worker.id
        complaints: list[str] = []
        states: Counter[str] = Counter()
        for _ in range(count):
            task = await self._held()
            complaints += await self._race(task, states)
        ended = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
        return Result(
            f"run races, {dialect}: {count} runs completed, failed, cancelled, terminated at once",
            "one end each, and the output and the error of that end",
            f"{ended}; {len(complaints)} broken promises",
            held=not complaints and sum(states.values()) == count,
            details=tuple(complaints),
        )

    async def _held(self) -> Task:
        """Return a run that the worker holds and that has a step."""
        new = NewTask(id=self._clock.new_id(), type=TYPE, queue=QUEUE, spec=SPEC)
        engine = self._engines[0]
        await engine.submit(StartRun(namespace=NAMESPACE, new=new))
        poll = ClaimTasks(
            namespace=NAMESPACE,
            worker_id=self._worker_id,
            queue=QUEUE,
            types=frozenset({TYPE}),
            wait_ms=5_000,
        )
        (task,) = await engine.submit(poll)
        items = (TaskRef(task.id, task.attempt),)
        await engine.submit(
            ConfirmTasks(namespace=NAMESPACE, worker_id=self._worker_id, items=items)
        )
        await engine.submit(self._step(task, 1))
        return task

    def _step(self, task: Task, number: int) -> RecordSteps:
        entry = NewEntry(EntryKind.STEP, f"step-{number}", EntryBody(output=OUTPUT))
        item = StepReport(task_id=task.id, attempt=task.attempt, first_no=number, entries=(entry,))
        return RecordSteps(namespace=NAMESPACE, worker_id=self._worker_id, items=(item,))

    def _finish(self, task: Task, kind: FinishKind) -> FinishTasks:
        is_success = kind is FinishKind.SUCCEEDED
        item = Finish(
            task_id=task.id,
            attempt=task.attempt,
            kind=kind,
            output=OUTPUT if is_success else None,
            error=None if is_success else ERROR,
        )
        return FinishTasks(namespace=NAMESPACE, worker_id=self._worker_id, items=(item,))

    async def _race(self, task: Task, states: Counter[str]) -> list[str]:
        commands: dict[str, AnyCommand] = {
            "complete": self._finish(task, FinishKind.SUCCEEDED),
            "fail": self._finish(task, FinishKind.FAILED),
            "cancel": CancelRun(namespace=NAMESPACE, run_id=task.id, reason="race"),
            "terminate": TerminateRun(namespace=NAMESPACE, run_id=task.id),
            "step": self._step(task, 2),
        }
        names = self._random.sample(list(commands), len(commands))
        asked = [self._random.choice(self._engines).submit(commands[name]) for name in names]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        told = {name: _is_accepted(each) for name, each in zip(names, answers, strict=True)}
        for each in answers:
            if isinstance(each, BaseException) and not isinstance(each, TenureError):
                raise each
        view = await run_read.get_run(self._engines[0].store, namespace=NAMESPACE, run_id=task.id)
        page = await run_read.read_journal(
            self._engines[-1].store, namespace=NAMESPACE, run_id=task.id
        )
        states[view.task.state] += 1
        kinds = [each.kind for each in page.entries]
        wrong = [] if [each.pos for each in page.entries] == [*range(1, page.end + 1)] else ["gap"]
        return wrong + _complaints(view.task, told, kinds)


def _is_accepted(answer: object) -> bool:
    """Tell whether a command was taken; reports are answered one by one."""
    first = answer[0] if isinstance(answer, tuple) else answer
    is_placed = hasattr(first, "places")
    return is_placed or isinstance(first, Reported)


def _complaints(task: Task, told: dict[str, bool], kinds: list[EntryKind]) -> list[str]:
    """Compare what everybody was told with what is stored."""
    ended = {
        "complete": task.state is TaskState.SUCCEEDED,
        "terminate": task.progress.reason is Reason.TERMINATED,
        "fail": task.state is not TaskState.SUCCEEDED and task.progress.error == ERROR,
    }
    wrong = []
    if [name for name in ENDS if told[name]] != [name for name in ENDS if ended[name]]:
        wrong.append(f"{task.id}: told {told}, stored {task.state} {task.progress.reason}")
    if (task.output == OUTPUT) != ended["complete"]:
        wrong.append(f"{task.id}: {task.state} with output {task.output!r}")
    # Cancelled before it failed, it is cancelled; it was told so by its journal.
    if told["cancel"] != (EntryKind.CANCEL in kinds) or told["cancel"] != task.is_cancel_requested:
        wrong.append(f"{task.id}: cancel told {told['cancel']}, journal {kinds}")
    if (task.state is TaskState.CANCELLED) != (ended["fail"] and told["cancel"]):
        wrong.append(f"{task.id}: {task.state} after {told}")
    if told["step"] != (kinds.count(EntryKind.STEP) == 2):
        wrong.append(f"{task.id}: step told {told['step']}, journal {kinds}")
    return wrong
