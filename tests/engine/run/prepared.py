"""One prepared command about runs of each type, for the tests of lost connections."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from tenure.core.limits import ENQUEUE_DECIDED_MS
from tenure.core.run.record import Yield
from tenure.core.task.record import Task
from tenure.engine.engine import Engine
from tenure.engine.read import run as run_read
from tenure.engine.run.child_command import CancelChildren, ChildCancel, CloseChildren, SpawnTasks
from tenure.engine.run.command import (
    CancelRun,
    NewSignal,
    RecordSteps,
    ResumeRun,
    SignalRun,
    StartRun,
    TerminateRun,
)
from tenure.engine.task.command import Anew, FinishKind, FinishTasks, ProcessDue
from tenure.errors import TaskAlreadyTerminal, TenureError, WrongState
from tests.engine.run.children import (
    claim_children,
    items,
    new_child,
    new_run,
    resizer,
    spawn,
    spawn_children,
    spawn_report,
)
from tests.engine.run.runs import (
    AGAIN_SPEC,
    RUN_SPEC,
    give_up_slot,
    positions,
    report,
    running_run,
    start,
    step,
)
from tests.engine.world import FATAL, NAMESPACE, World, finish

Prepare = Callable[[World, Engine], Awaitable[Any]]


async def _start(world: World, _engine: Engine) -> Any:
    new = world.new(spec=RUN_SPEC, idempotency_key="k", input=b"in")
    await world.advance(ENQUEUE_DECIDED_MS)
    signals = (NewSignal(name="go", payload=b"1"),)
    fields: dict[str, Any] = {"signals": signals, "is_resend": True, "external_id": "order-42"}
    return StartRun(namespace=NAMESPACE, new=new, **fields)


def _record(*, is_remembered: bool) -> Prepare:
    async def prepare(world: World, engine: Engine) -> Any:
        worker = await world.worker(engine)
        run = await running_run(world, engine, worker)
        if is_remembered:
            await positions(engine, worker, report(run))
        item = report(run, step("a"), step("b"), first_no=1 + is_remembered)
        items = (item,) if is_remembered else (item, report(run, first_no=3))
        return RecordSteps(namespace=NAMESPACE, worker_id=worker, items=items)

    return prepare


async def _record_one(world: World, engine: Engine) -> Any:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    await positions(engine, worker, report(run))
    items = (report(run, first_no=2),)
    return RecordSteps(namespace=NAMESPACE, worker_id=worker, items=items)


async def _signal(world: World, engine: Engine) -> Any:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    await give_up_slot(world, engine, worker, run)
    signal = NewSignal(name="approve", payload=b"1", signal_id="s1")
    return SignalRun(namespace=NAMESPACE, run_id=run.id, signal=signal)


async def _cancel(world: World, engine: Engine) -> Any:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    return CancelRun(namespace=NAMESPACE, run_id=run.id, reason="enough")


async def _resume(world: World, engine: Engine) -> Any:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    await world.finish(engine, worker, run, FinishKind.PARKED, error=FATAL)
    return ResumeRun(namespace=NAMESPACE, run_id=run.id)


async def _terminate(world: World, engine: Engine) -> Any:
    return TerminateRun(namespace=NAMESPACE, run_id=await start(world, engine))


async def _due(world: World, engine: Engine) -> Any:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    wake_at_ms = world.clock.now_ms() + 1_000
    await give_up_slot(world, engine, worker, run, wake_at_ms=wake_at_ms, wake_key="sleep")
    await world.advance(1_000)
    return ProcessDue(sighted_ms=10**9, amount=10)


async def _retry(world: World, engine: Engine) -> Any:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker, external_id="order-42")
    await positions(engine, worker, report(run, step("a"), step("b")))
    await world.finish(engine, worker, run, FinishKind.FAILED, error=FATAL)
    return await run_read.plan_retry(
        engine.store,
        namespace=NAMESPACE,
        run_id=run.id,
        new_run_id=world.clock.new_id(),
        from_step="b",
    )


def _finish(kind: FinishKind, **fields: Any) -> Prepare:
    async def prepare(world: World, engine: Engine) -> Any:
        worker = await world.worker(engine)
        run = await running_run(world, engine, worker, spec=AGAIN_SPEC)
        await positions(engine, worker, report(run))
        items = (finish(run, kind, **fields),)
        return FinishTasks(namespace=NAMESPACE, worker_id=worker, items=items)

    return prepare


async def _continue(world: World, engine: Engine) -> Any:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker, signals=(NewSignal(name="go"),))
    await positions(engine, worker, report(run))
    anew = Anew(seen=2, keep=(1,), input=b"next", encoding="other")
    items = (finish(run, FinishKind.CONTINUED, anew=anew),)
    return FinishTasks(namespace=NAMESPACE, worker_id=worker, items=items)


async def _parent(world: World, engine: Engine) -> tuple[str, Task]:
    """Return a worker and the run that it holds, with a child of each kind and a group."""
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    children = (new_child(world, "a"), new_run(world, "b"))
    new = items(world, 0, 2)
    group = spawn_report(run, *new, group_key="map:resize", group_total=3)
    assert await spawn(engine, worker, spawn_report(run, *children), group) == (None, None)
    return worker, run


async def _spawn(world: World, engine: Engine) -> Any:
    worker, run = await _parent(world, engine)
    children = (new_child(world, "c"), new_run(world, "d"))
    last = items(world, 2, 3)
    group = spawn_report(run, *last, group_key="map:resize", group_total=3)
    return SpawnTasks(
        namespace=NAMESPACE, worker_id=worker, items=(spawn_report(run, *children), group)
    )


async def _cancel_children(world: World, engine: Engine) -> Any:
    worker, run = await _parent(world, engine)
    (child_id,) = await spawn_children(engine, worker, run, new_child(world, "c"))
    fields: dict[str, Any] = {"task_id": run.id, "attempt": run.attempt, "number": 2}
    cancels = (
        ChildCancel(child_ids=(child_id,), **fields),
        ChildCancel(group_key="map:resize", **fields),
    )
    return CancelChildren(namespace=NAMESPACE, worker_id=worker, items=cancels)


async def _close(world: World, engine: Engine) -> Any:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    await spawn_children(engine, worker, run, new_child(world, "a"), new_run(world, "b"))
    await world.finish(engine, worker, run)
    return CloseChildren(amount=10)


async def _end_parent(world: World, engine: Engine) -> Any:
    worker, run = await _parent(world, engine)
    return FinishTasks(namespace=NAMESPACE, worker_id=worker, items=(finish(run),))


def _end_children(kind: FinishKind) -> Prepare:
    async def prepare(world: World, engine: Engine) -> Any:
        worker, run = await _parent(world, engine)
        await give_up_slot(world, engine, worker, run)
        other = await resizer(world, engine)
        tasks = await claim_children(world, engine, other)
        done = tuple([finish(task, kind) for task in tasks])
        return FinishTasks(namespace=NAMESPACE, worker_id=other, items=done)

    return prepare


OF_RUNS: Final = {FinishKind.YIELDED, FinishKind.PARKED, FinishKind.CONTINUED}
RUN_CASES: Final[dict[str, tuple[Prepare, type[TenureError] | None]]] = {
    "StartRun": (_start, None),
    "RecordSteps": (_record(is_remembered=False), None),
    "RecordSteps remembered": (_record(is_remembered=True), None),
    "RecordSteps alone": (_record_one, None),
    "SignalRun": (_signal, None),
    "CancelRun": (_cancel, None),
    "ResumeRun": (_resume, WrongState),
    "RetryRun": (_retry, None),
    "TerminateRun": (_terminate, TaskAlreadyTerminal),
    "ProcessDue of a run": (_due, None),
    "FinishTasks yielded": (_finish(FinishKind.YIELDED, wish=Yield(seen=1)), None),
    "FinishTasks yielded early": (_finish(FinishKind.YIELDED, wish=Yield(seen=0)), None),
    "FinishTasks parked": (_finish(FinishKind.PARKED, error=FATAL), None),
    "FinishTasks continued": (_continue, None),
    "FinishTasks of a run that begins anew": (_finish(FinishKind.FAILED), None),
    "SpawnTasks": (_spawn, None),
    "CancelChildren": (_cancel_children, None),
    "CloseChildren": (_close, None),
    "FinishTasks of a run with children": (_end_parent, None),
    "FinishTasks of children": (_end_children(FinishKind.SUCCEEDED), None),
    "FinishTasks of children that fail": (_end_children(FinishKind.FAILED), None),
}
"""With the refusal that a repetition may get when the first one was committed."""
