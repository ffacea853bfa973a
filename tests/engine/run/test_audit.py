"""What is done to runs is in the audit log, with who did it; what changes nothing is not."""

from __future__ import annotations

import pytest

from tenure.core.access.audit import AuditRecord
from tenure.core.limits import AUDIT_DETAIL_BYTES_MAX
from tenure.engine.command import AnyCommand
from tenure.engine.engine import Engine
from tenure.engine.read import access as access_read
from tenure.engine.read import query
from tenure.engine.read.run import plan_retry
from tenure.engine.run.command import CancelRun, ResumeRun, TerminateRun
from tenure.engine.task.command import (
    CancelTask,
    FinishKind,
    PauseTask,
    ResumeTask,
    RetryTask,
    TerminateTask,
)
from tenure.errors import TenureError
from tests.engine.run.runs import held_run, running_run, signal, start
from tests.engine.world import FATAL, NAMESPACE, World

ACTOR = "tnr-key-1"


async def records(engine: Engine) -> list[AuditRecord]:
    asked = query.PageRequest(cursor_key=b"k" * 32, size=100)
    return list(reversed((await access_read.list_audit(engine.store, page=asked)).items))


async def done(engine: Engine) -> list[tuple[str, str, str, str]]:
    """Return what the log has, the oldest first."""
    found = await records(engine)
    assert {each.namespace for each in found} <= {NAMESPACE}
    return [(each.action, each.actor, each.target, each.detail) for each in found]


async def test_each_change_of_a_run_is_recorded_once(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    parked = await held_run(world, engine, worker)
    await world.finish(engine, worker, parked, FinishKind.PARKED, error=FATAL)
    await engine.submit(ResumeRun(namespace=NAMESPACE, run_id=parked.id, actor=ACTOR))
    for _ in range(2):
        reason = "no longer needed"
        await engine.submit(
            CancelRun(namespace=NAMESPACE, run_id=parked.id, reason=reason, actor=ACTOR)
        )
    await engine.submit(TerminateRun(namespace=NAMESPACE, run_id=parked.id, actor=ACTOR))
    assert await done(engine) == [
        ("run.resume", ACTOR, parked.id, "mail"),
        ("run.cancel", ACTOR, parked.id, "mail: no longer needed"),
        ("run.terminate", ACTOR, parked.id, "mail"),
    ]


async def test_a_retry_names_the_new_run(world: World, engine: Engine) -> None:
    run_id = await start(world, engine)
    await engine.submit(TerminateRun(namespace=NAMESPACE, run_id=run_id))
    new_id = world.clock.new_id()
    plan = await plan_retry(engine.store, namespace=NAMESPACE, run_id=run_id, new_run_id=new_id)
    for _ in range(2):
        await engine.submit(plan)
    assert (await done(engine))[1:] == [("run.retry", "", run_id, f"mail: new run {new_id}")]


async def test_calls_for_tasks_that_change_a_run_are_recorded_too(
    world: World, engine: Engine
) -> None:
    run_id, new_id = await start(world, engine), world.clock.new_id()
    fields = {"namespace": NAMESPACE, "task_id": run_id, "actor": ACTOR}
    for command in (PauseTask(**fields), ResumeTask(**fields), TerminateTask(**fields)):
        await engine.submit(command)
    await engine.submit(RetryTask(**fields, new_task_id=new_id))
    await engine.submit(CancelTask(**{**fields, "task_id": new_id}))
    assert [(each.action, each.actor, each.target) for each in await records(engine)] == [
        ("run.pause", ACTOR, run_id),
        ("run.resume", ACTOR, run_id),
        ("run.terminate", ACTOR, run_id),
        ("run.retry", ACTOR, run_id),
        ("run.cancel", ACTOR, new_id),
    ]


async def test_neither_tasks_nor_signals_are_recorded(world: World, engine: Engine) -> None:
    (task_id,) = await world.add(engine)
    await engine.submit(CancelTask(namespace=NAMESPACE, task_id=task_id, actor=ACTOR))
    again = RetryTask(
        namespace=NAMESPACE, task_id=task_id, new_task_id=world.clock.new_id(), actor=ACTOR
    )
    await engine.submit(again)
    await signal(engine, await start(world, engine))
    assert await done(engine) == []


async def test_what_is_refused_leaves_no_record(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    await world.finish(engine, worker, run)
    fields = {"namespace": NAMESPACE, "run_id": run.id, "actor": ACTOR}
    refused: list[AnyCommand] = [CancelRun(**fields), ResumeRun(**fields), TerminateRun(**fields)]
    for command in refused:
        with pytest.raises(TenureError):
            await engine.submit(command)
    assert await done(engine) == []


async def test_a_long_reason_is_cut_between_characters(world: World, engine: Engine) -> None:
    run_id = await start(world, engine)
    reason = "ż" * (AUDIT_DETAIL_BYTES_MAX // 2)
    await engine.submit(CancelRun(namespace=NAMESPACE, run_id=run_id, reason=reason))
    (record,) = await records(engine)
    assert len(record.detail.encode()) <= AUDIT_DETAIL_BYTES_MAX
    assert record.detail.startswith("mail: żż")
