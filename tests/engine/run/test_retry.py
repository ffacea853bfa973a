"""Runs from finished ones: what is kept, what is done again, and what is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.core.journal.entry import EntryKind
from tenure.core.run.wake_up import run_of
from tenure.core.task.record import Task, TaskState
from tenure.engine.engine import Engine
from tenure.engine.read import run as run_read
from tenure.engine.run.command import Retried, RetryRun
from tenure.engine.task.command import FinishKind
from tenure.errors import AlreadyExists, DataDamaged, InvalidArgument, NotFound, WrongState
from tests.engine.run.children import claim_children, resizer
from tests.engine.run.runs import (
    cancel,
    continue_as_new,
    journal,
    kinds,
    positions,
    report,
    running_run,
    signal,
    start,
    step,
)
from tests.engine.run.test_group import end_all, groups, mapped, results
from tests.engine.world import FATAL, NAMESPACE, OTHER_NAMESPACE, World


async def plan(world: World, engine: Engine, run_id: str, **how: Any) -> RetryRun:
    fields = {"namespace": NAMESPACE, "new_run_id": world.clock.new_id(), **how}
    return await run_read.plan_retry(engine.store, run_id=run_id, **fields)


async def retry(world: World, engine: Engine, run_id: str, **how: Any) -> Retried:
    return await engine.submit(await plan(world, engine, run_id, **how))


async def failed_run(world: World, engine: Engine, **changes: Any) -> tuple[str, Task]:
    """Return a worker, and a run whose second of three steps has failed."""
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker, **{"input": b"1", **changes})
    entries = (step("a"), step("b", output=None, error=FATAL), step("c"))
    await positions(engine, worker, report(run, *entries))
    await world.finish(engine, worker, run, FinishKind.FAILED, error=FATAL)
    assert await world.state(run.id) is TaskState.FAILED
    return worker, run


async def test_a_new_run_keeps_what_was_before_a_step(world: World, engine: Engine) -> None:
    worker, run = await failed_run(world, engine, labels={"a": "b"})
    made = await retry(world, engine, run.id, from_step="b")
    assert (made.is_new, made.kept_count, made.state) == (True, 1, TaskState.PENDING)
    (entry,) = await journal(engine, made.task_id)
    (was, *_) = await journal(engine, run.id)
    assert (entry.key, entry.body, entry.at_ms, entry.total_bytes) == (
        "a",
        was.body,
        was.at_ms,
        was.total_bytes,
    )
    # The new run has attempts of its own, which number what they report.
    assert (entry.attempt, entry.no) == (0, 0)
    (again,) = await world.claim(engine, worker)
    assert (again.id, again.input, again.labels) == (made.task_id, b"1", {"a": "b"})
    assert again.link is not None
    assert again.link.page is not None
    assert [each.key for each in again.link.page.entries] == ["a"]
    assert again.link.place.first_run_id == run.id
    assert await positions(engine, worker, report(again, step("b"))) == [2]
    # The finished run stays as it was.
    assert len(await journal(engine, run.id)) == 3


@pytest.mark.parametrize(
    ("how", "kept"), [({}, 0), ({"from_step": "last"}, 1), ({"from_position": 4}, 3)]
)
async def test_a_place_is_a_call_a_position_or_the_start(
    world: World, engine: Engine, how: dict[str, Any], kept: int
) -> None:
    _, run = await failed_run(world, engine)
    made = await retry(world, engine, run.id, **how)
    assert made.kept_count == kept
    assert len(await journal(engine, made.task_id)) == kept


async def test_a_session_that_waits_gets_the_run_and_reads_what_it_keeps(
    world: World, engine: Engine
) -> None:
    _, run = await failed_run(world, engine)
    worker = await world.worker(engine)
    sink, _ = await world.session(engine, worker)
    made = await retry(world, engine, run.id, from_position=4)
    await world.settle(engine)
    (again,) = sink.take()
    assert again.id == made.task_id
    assert again.link is not None
    assert again.link.page is not None
    # It asks for what its page does not have.
    assert again.link.page.end == 3
    await signal(engine, made.task_id)
    assert await kinds(engine, made.task_id) == [EntryKind.STEP] * 3 + [EntryKind.SIGNAL]


async def test_a_long_journal_is_copied_in_parts(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    many = [step(f"s{number}") for number in range(900)]
    await positions(engine, worker, report(run, *many))
    await positions(engine, worker, report(run, *many, first_no=901))
    await positions(engine, worker, report(run, step("last one"), first_no=1801))
    await world.finish(engine, worker, run, FinishKind.SUCCEEDED)
    made = await retry(world, engine, run.id, from_step="last one")
    view = await run_read.get_run(engine.store, namespace=NAMESPACE, run_id=made.task_id)
    old = await run_read.get_run(engine.store, namespace=NAMESPACE, run_id=run.id)
    assert (made.kept_count, view.entry_count) == (1_800, 1_800)
    assert view.journal_bytes < old.journal_bytes


async def test_the_external_id_moves(world: World, engine: Engine) -> None:
    _, run = await failed_run(world, engine, external_id="o")
    made = await retry(world, engine, "external:o", from_step="last")
    view = await run_read.get_run(engine.store, namespace=NAMESPACE, run_id="external:o")
    assert view.task.id == made.task_id
    assert view.task.spec.retry_of == run.id
    before = await world.dump()
    with pytest.raises(AlreadyExists, match=made.task_id):
        await retry(world, engine, run.id)
    assert await world.dump() == before
    await cancel(engine, made.task_id)
    assert (await retry(world, engine, run.id)).is_new


async def test_the_same_request_again_is_the_same_run(world: World, engine: Engine) -> None:
    _, run = await failed_run(world, engine, external_id="o")
    command = await plan(world, engine, run.id, from_step="last")
    first = await engine.submit(command)
    again = await engine.submit(command)
    assert (again.task_id, again.is_new, again.kept_count) == (first.task_id, False, 1)
    assert len(await journal(engine, first.task_id)) == 1
    await cancel(engine, first.task_id)
    _, other = await failed_run(world, engine)
    with pytest.raises(AlreadyExists):
        await engine.submit(replace(command, run_id=other.id, external_id=""))


async def test_two_servers_make_one_run_of_one_request(world: World, engine: Engine) -> None:
    other = await world.start()
    _, run = await failed_run(world, engine, external_id="o")
    command = await plan(world, engine, run.id, from_step="last")
    answers = await asyncio.gather(engine.submit(command), other.submit(command))
    assert {each.task_id for each in answers} == {command.new_run_id}
    assert len(await journal(engine, command.new_run_id)) == 1


async def test_a_retry_of_a_run_that_began_anew_keeps_its_generation(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    await continue_as_new(world, engine, worker, run, input=b"2")
    (again,) = await world.claim(engine, worker)
    await world.confirm(engine, worker, again)
    await positions(engine, worker, report(again, step("a"), step("b")))
    await world.finish(engine, worker, again, FinishKind.FAILED, error=FATAL)
    made = await retry(world, engine, run.id, from_step="b")
    (new,) = await world.claim(engine, worker)
    assert (new.id, new.input, run_of(new).generation) == (made.task_id, b"2", 1)
    assert run_of(new).begun_at_ms == run_of(again).begun_at_ms


async def test_only_a_finished_run_is_retried(world: World, engine: Engine) -> None:
    run_id = await start(world, engine)
    (task_id,) = await world.add(engine)
    with pytest.raises(WrongState):
        await plan(world, engine, run_id)
    bare = RetryRun(namespace=NAMESPACE, run_id=run_id, new_run_id=world.clock.new_id())
    with pytest.raises(WrongState):
        await engine.submit(bare)
    for command in (replace(bare, run_id=task_id), replace(bare, namespace=OTHER_NAMESPACE)):
        with pytest.raises(NotFound):
            await engine.submit(command)
    for name in (task_id, world.clock.new_id(), "external:nobody"):
        with pytest.raises(NotFound):
            await plan(world, engine, name)


async def test_a_journal_that_retention_has_removed_is_named(world: World, engine: Engine) -> None:
    _, run = await failed_run(world, engine)
    command = await plan(world, engine, run.id, from_position=3)
    await world.database.execute("DELETE FROM journal WHERE pos = 1")
    with pytest.raises(NotFound, match="Retry it without a step"):
        await plan(world, engine, run.id, from_position=3)
    before = await world.dump()
    with pytest.raises(Exception, match="again"):
        await engine.submit(command)
    assert await world.dump() == before
    await world.database.execute("DELETE FROM journal WHERE pos > 2")
    with pytest.raises(NotFound, match="Retry it without a step"):
        await plan(world, engine, run.id, from_step="last")
    assert (await retry(world, engine, run.id)).kept_count == 0


async def test_a_damaged_entry_is_named(world: World, engine: Engine) -> None:
    _, run = await failed_run(world, engine)
    await world.database.execute("UPDATE journal SET body = NULL WHERE pos = 1")
    value = "x'c1'" if world.dialect == "sqlite" else "'\\xc1'"
    await world.database.execute(f"UPDATE journal SET body = {value} WHERE pos = 2")
    with pytest.raises(DataDamaged):
        await plan(world, engine, run.id, from_step="last")


@pytest.mark.parametrize(
    ("how", "field"),
    [
        ({"run_id": "x"}, "runId"),
        ({"new_run_id": "x"}, "newRunId"),
        ({"from_step": "a\0b"}, "fromStep"),
        ({"from_step": "x" * 513}, "fromStep"),
        ({"from_step": "nothing"}, "fromStep"),
        ({"from_position": -1}, "fromPosition"),
        ({"from_position": 2**63}, "fromPosition"),
        ({"from_position": 5}, "fromPosition"),
        ({"from_step": "a", "from_position": 1}, "fromPosition"),
        ({"namespace": "a b"}, "namespace"),
    ],
)
async def test_bad_input_is_named_and_changes_nothing(
    world: World, engine: Engine, how: dict[str, Any], field: str
) -> None:
    _, run = await failed_run(world, engine)
    before = await world.dump()
    with pytest.raises(InvalidArgument) as refusal:
        await retry(world, engine, **{"run_id": run.id, **how})
    assert refusal.value.fields["field"] == field
    assert await world.dump() == before


async def test_results_of_a_group_are_kept_with_its_entry(world: World, engine: Engine) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    run, _ = await mapped(world, engine, worker, 3)
    await end_all(engine, other, await claim_children(world, engine, other))
    failed = step("ship", output=None, error=FATAL)
    await positions(engine, worker, report(run, failed))
    await world.finish(engine, worker, run, FinishKind.FAILED, error=FATAL)
    made = await retry(world, engine, run.id, from_step="last")
    assert await kinds(engine, made.task_id) == [EntryKind.GROUP]
    (copied,), (first,) = await groups(engine, made.task_id), await groups(engine, run.id)
    assert copied.group_id != first.group_id
    assert (copied.total, copied.spawned, copied.open_count, copied.has_ended) == (3, 3, 0, True)
    shown = [(each.pos, each.key, each.body) for each in await results(engine, made.task_id)]
    assert shown == [(each.pos, each.key, each.body) for each in await results(engine, run.id)]
    assert len(shown) == 3
    # Without the entry of the group its items are made again.
    whole = await retry(world, engine, run.id)
    assert await groups(engine, whole.task_id) == []
