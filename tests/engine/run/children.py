"""Short ways to make children of runs, to end them and to read what their parents hear."""

from __future__ import annotations

from typing import Any

from tenure.core.journal.entry import Entry, EntryKind
from tenure.core.task.record import Task
from tenure.engine.engine import Engine
from tenure.engine.run.child_command import (
    CancelChildren,
    ChildAnswer,
    ChildCancel,
    NewChild,
    SpawnReport,
    SpawnTasks,
)
from tenure.errors import Rejection
from tests.engine.run.runs import RUN_SPEC, journal, running_run
from tests.engine.world import NAMESPACE, World


def new_child(world: World, key: str = "resize", **changes: Any) -> NewChild:
    """Make an activity that a run calls; fields of the task are given as ``new``."""
    given = {"type": "resize", **changes.pop("new", {})}
    return NewChild(new=world.new(**given), key=key, **changes)


def new_run(world: World, key: str = "child:ship", **changes: Any) -> NewChild:
    given = {"type": "ship", "spec": RUN_SPEC, **changes.pop("new", {})}
    return new_child(world, key, new=given, **changes)


def items(world: World, first: int, last: int, **changes: Any) -> tuple[NewChild, ...]:
    """Make items of a group."""
    return tuple(new_child(world, "", item=item, **changes) for item in range(first, last))


def spawn_report(run: Task, *children: NewChild, **changes: Any) -> SpawnReport:
    fields = {"task_id": run.id, "attempt": run.attempt, "number": 1, **changes}
    return SpawnReport(children=children, **fields)


async def spawn(
    engine: Engine, worker: str, *reports: SpawnReport, **changes: Any
) -> tuple[ChildAnswer, ...]:
    fields = {"namespace": NAMESPACE, "worker_id": worker, **changes}
    return await engine.submit(SpawnTasks(items=reports, **fields))


async def spawn_children(
    engine: Engine, worker: str, run: Task, *children: NewChild, **changes: Any
) -> list[str]:
    """Make children that must be taken, and return their ids."""
    (answer,) = await spawn(engine, worker, spawn_report(run, *children, **changes))
    assert answer is None, answer
    return [each.new.id for each in children]


async def spawn_refusal(engine: Engine, worker: str, report: SpawnReport) -> Rejection:
    (answer,) = await spawn(engine, worker, report)
    assert isinstance(answer, Rejection), answer
    return answer


async def cancel_children(
    engine: Engine, worker: str, run: Task, *child_ids: str, **changes: Any
) -> ChildAnswer:
    fields = {"task_id": run.id, "attempt": run.attempt, "number": 1, **changes}
    item = ChildCancel(child_ids=child_ids, **fields)
    command = CancelChildren(namespace=NAMESPACE, worker_id=worker, items=(item,))
    (answer,) = await engine.submit(command)
    return answer


async def parent_of(
    world: World, engine: Engine, worker: str, count: int = 1, **changes: Any
) -> tuple[Task, list[str]]:
    """Return a run that a worker holds, and the ids of its children."""
    run = await running_run(world, engine, worker)
    children = [new_child(world, f"resize#{number}", **changes) for number in range(count)]
    return run, await spawn_children(engine, worker, run, *children)


async def resizer(world: World, engine: Engine, **changes: Any) -> str:
    return await world.worker(engine, "resize", **changes)


async def claim_children(
    world: World, engine: Engine, worker: str, type: str = "resize", **changes: Any
) -> list[Task]:
    """Let a worker have children, and confirm them."""
    fields = {"max_tasks": 100, "types": frozenset({type}), **changes}
    tasks = await world.claim(engine, worker, **fields)
    if tasks:
        await world.confirm(engine, worker, *tasks)
    return list(tasks)


async def ends(engine: Engine, run_id: str) -> list[Entry]:
    """Return the ends of children and groups in the journal of a run."""
    entries = await journal(engine, run_id)
    return [each for each in entries if each.kind in (EntryKind.CHILD, EntryKind.GROUP)]


async def states(engine: Engine, run_id: str) -> list[str]:
    """Return the states of children that a run has heard of."""
    return [each.content.state for each in await ends(engine, run_id)]
