"""Short ways to start runs, to report their steps and to look at their journals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from tenure.core.journal.entry import Entry, EntryBody, EntryKind, NewEntry
from tenure.core.run.record import Yield
from tenure.core.task.record import Spec, Task, TaskKind
from tenure.core.task.retry import RetryPolicy
from tenure.engine.engine import Engine
from tenure.engine.read import run as run_read
from tenure.engine.run.command import (
    CancelRun,
    NewSignal,
    RecordSteps,
    Signalled,
    SignalRun,
    StartRun,
    StepAnswer,
    StepReport,
    StepsPlaced,
    TerminateRun,
)
from tenure.engine.task.command import Anew, FinishKind, Reported
from tenure.errors import Rejection
from tests.engine.world import NAMESPACE, World

RUN_SPEC: Final = Spec(kind=TaskKind.WORKFLOW, retry=RetryPolicy(maximum_attempts=1))
AGAIN_SPEC: Final = Spec(kind=TaskKind.WORKFLOW, retry=RetryPolicy(maximum_attempts=2))


def step(key: str = "charge", **content: Any) -> NewEntry:
    return NewEntry(EntryKind.STEP, key, EntryBody(**{"output": b"12", **content}))


def timer(fire_at_ms: int, key: str = "sleep") -> NewEntry:
    return NewEntry(EntryKind.TIMER, key, EntryBody(fire_at_ms=fire_at_ms))


async def start(world: World, engine: Engine, **changes: Any) -> str:
    """Start a run and return its id."""
    return (await engine.submit(starting(world, **changes))).task_id


def starting(world: World, **changes: Any) -> StartRun:
    """Return a command that starts a run."""
    of_command = ("namespace", "signals", "is_resend", "external_id", "on_live", "on_finished")
    fields = {name: changes.pop(name) for name in of_command if name in changes}
    new = world.new(**{"spec": RUN_SPEC, **changes})
    return StartRun(**{"namespace": NAMESPACE, "new": new, **fields})


async def held_run(world: World, engine: Engine, worker: str, **changes: Any) -> Task:
    """Start a run and let a worker have it."""
    run_id = await start(world, engine, **changes)
    (task,) = await world.claim(engine, worker)
    assert task.id == run_id
    return task


async def running_run(world: World, engine: Engine, worker: str, **changes: Any) -> Task:
    """Start a run, let a worker have it and confirm it."""
    task = await held_run(world, engine, worker, **changes)
    await world.confirm(engine, worker, task)
    return task


def report(task: Task, *entries: NewEntry, first_no: int = 1, **changes: Any) -> StepReport:
    fields = {"task_id": task.id, "attempt": task.attempt, **changes}
    return StepReport(first_no=first_no, entries=entries or (step(),), **fields)


async def record(
    engine: Engine, worker: str, *reports: StepReport, **fields: Any
) -> tuple[StepAnswer, ...]:
    command = RecordSteps(
        **{"namespace": NAMESPACE, "worker_id": worker, "items": reports, **fields}
    )
    return await engine.submit(command)


async def positions(engine: Engine, worker: str, item: StepReport, **fields: Any) -> list[int]:
    """Record a report that must be taken, and return where its entries stand."""
    (answer,) = await record(engine, worker, item, **fields)
    assert isinstance(answer, StepsPlaced), answer
    return [each.pos for each in answer.places]


def placed(answers: Iterable[StepAnswer]) -> list[StepsPlaced]:
    """Return answers of which none must be a refusal."""
    found = []
    for each in answers:
        assert isinstance(each, StepsPlaced), each
        found.append(each)
    return found


async def refusal(engine: Engine, worker: str, item: StepReport) -> Rejection:
    (answer,) = await record(engine, worker, item)
    assert isinstance(answer, Rejection), answer
    return answer


async def signal(engine: Engine, run_id: str, name: str = "approve", **fields: Any) -> Signalled:
    command = SignalRun(namespace=NAMESPACE, run_id=run_id, signal=NewSignal(name=name, **fields))
    return await engine.submit(command)


async def cancel(engine: Engine, run_id: str, reason: str = "") -> Reported:
    return await engine.submit(CancelRun(namespace=NAMESPACE, run_id=run_id, reason=reason))


async def terminate(engine: Engine, run_id: str) -> Reported:
    return await engine.submit(TerminateRun(namespace=NAMESPACE, run_id=run_id))


async def give_up_slot(
    world: World, engine: Engine, worker: str, task: Task, **wish: Any
) -> Reported | Rejection:
    made = Yield(**{"seen": 0, **wish})
    return await world.finish(engine, worker, task, FinishKind.YIELDED, wish=made)


async def continue_as_new(
    world: World, engine: Engine, worker: str, task: Task, **anew: Any
) -> Reported | Rejection:
    made = Anew(**{"seen": 0, "input": b"next", **anew})
    return await world.finish(engine, worker, task, FinishKind.CONTINUED, anew=made)


async def journal(engine: Engine, run_id: str, after: int = 0) -> tuple[Entry, ...]:
    page = await run_read.read_journal(
        engine.store, namespace=NAMESPACE, run_id=run_id, after=after
    )
    return page.entries


async def kinds(engine: Engine, run_id: str) -> list[EntryKind]:
    """Return what is in the journal, whose positions must have no gap."""
    entries = await journal(engine, run_id)
    assert [each.pos for each in entries] == list(range(1, len(entries) + 1))
    return [each.kind for each in entries]
