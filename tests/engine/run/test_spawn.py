"""Children that runs make: stored once, dealt at once, refused when they are not the holder's."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tenure.core import limits
from tenure.core.run.child import place_of
from tenure.core.run.record import ClosePolicy
from tenure.core.task.record import TaskState
from tenure.engine.engine import Engine
from tenure.engine.run import child_handler
from tenure.errors import InvalidArgument, PayloadTooLarge
from tests.engine.run.children import (
    claim_children,
    ends,
    new_child,
    new_run,
    parent_of,
    resizer,
    spawn,
    spawn_children,
    spawn_refusal,
    spawn_report,
)
from tests.engine.run.runs import give_up_slot, journal, running_run, start
from tests.engine.world import NAMESPACE, World


async def test_a_child_knows_its_run_and_its_call(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    assert run.link is not None
    child = new_child(world, "2/resize#3", index=7, close_policy=ClosePolicy.ABANDON)
    (child_id,) = await spawn_children(engine, worker, run, child)
    task = await world.task(child_id)
    assert task.link is not None
    assert (task.link.parent_id, task.link.journal_id) == (run.id, None)
    place = place_of(task)
    assert (place.run_id, place.journal_id, place.root_run_id) == (
        run.id,
        run.link.journal_id,
        run.id,
    )
    assert (place.key, place.index, place.depth) == ("2/resize#3", 7, 1)
    assert place.close_policy is ClosePolicy.ABANDON
    assert place.step_key == f"{run.id}:0:2/resize#3"


async def test_a_child_run_has_a_journal_of_its_own(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    (child_id,) = await spawn_children(engine, worker, run, new_run(world, external_id="order-1"))
    task = await world.task(child_id)
    assert task.link is not None
    assert run.link is not None
    assert task.link.journal_id not in (None, run.link.journal_id)
    assert task.link.external_id == "order-1"
    assert await journal(engine, child_id) == ()


async def test_the_row_of_the_run_is_not_written(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run, _ = await parent_of(world, engine, worker, 3)
    assert (await world.task(run.id)).version == (await world.task(run.id)).version
    before = (await world.task(run.id)).version
    await spawn_children(engine, worker, run, new_child(world, "again"))
    assert (await world.task(run.id)).version == before


async def test_children_are_handed_out_with_the_batch_that_makes_them(
    world: World, engine: Engine
) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    sink, _ = await world.session(engine, other)
    run, ids = await parent_of(world, engine, worker, 2)
    del run
    assert [task.id for task in sink.given] == ids
    assert {(await world.task(each)).version for each in ids} == {0}


async def test_a_repeated_report_makes_nothing_new(world: World, engine: Engine) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    run = await running_run(world, engine, worker)
    report = spawn_report(run, new_child(world, "a"), new_child(world, "b"))
    assert await spawn(engine, worker, report) == (None,)
    first, _ = await claim_children(world, engine, other)
    await world.finish(engine, other, first)
    dump = await world.dump("tasks", "history", "journal")
    assert await spawn(engine, worker, report) == (None,)
    assert await world.dump("tasks", "history", "journal") == dump


async def test_a_stale_attempt_makes_nothing(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    await give_up_slot(world, engine, worker, run)
    late = await spawn_refusal(engine, worker, spawn_report(run, new_child(world)))
    assert late.code == "attempt_mismatch"
    assert len((await world.dump("tasks"))["tasks"]) == 1


async def test_another_worker_makes_nothing(world: World, engine: Engine) -> None:
    worker, other = await world.worker(engine), await world.worker(engine)
    run = await running_run(world, engine, worker)
    report = spawn_report(run, new_child(world))
    assert (await spawn_refusal(engine, other, report)).code == "attempt_mismatch"
    assert len((await world.dump("tasks"))["tasks"]) == 1


async def test_a_run_that_has_ended_and_one_that_never_was_make_nothing(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    await world.finish(engine, worker, run)
    report = spawn_report(run, new_child(world))
    assert (await spawn_refusal(engine, worker, report)).code == "task_already_terminal"
    nobody = replace(report, task_id=world.clock.new_id())
    assert (await spawn_refusal(engine, worker, nobody)).code == "not_found"


async def test_a_refused_report_disturbs_no_other(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    good, bad = spawn_report(run, new_child(world)), spawn_report(run, new_child(world))
    answers = await spawn(engine, worker, replace(bad, attempt=9), good)
    assert [answer is None for answer in answers] == [False, True]
    assert len((await world.dump("tasks"))["tasks"]) == 2


async def test_a_report_is_stored_as_a_whole_or_not_at_all(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    (foreign,) = await world.add(engine)
    taken = new_child(world, "taken")
    taken = replace(taken, new=replace(taken.new, id=foreign))
    refusal = await spawn_refusal(engine, worker, spawn_report(run, new_child(world), taken))
    assert refusal.code == "already_exists"
    assert len((await world.dump("tasks"))["tasks"]) == 2


async def test_open_children_are_limited(
    world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_handler, "OPEN_CHILDREN_MAX", 3)
    worker = await world.worker(engine)
    run, _ = await parent_of(world, engine, worker, 2)
    report = spawn_report(run, new_child(world, "x"), new_child(world, "y"))
    refusal = await spawn_refusal(engine, worker, report)
    assert (refusal.code, refusal.fields) == ("payload_too_large", {"limit": 3})
    await spawn_children(engine, worker, run, new_child(world, "x"))


async def test_runs_below_runs_have_a_limit(
    world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.core.run.child.RUN_DEPTH_MAX", 1)
    worker, other = await world.worker(engine), await world.worker(engine, "ship")
    run = await running_run(world, engine, worker)
    await spawn_children(engine, worker, run, new_run(world))
    (below,) = await claim_children(world, engine, other, "ship")
    refusal = await spawn_refusal(engine, other, spawn_report(below, new_run(world)))
    assert refusal.code == "invalid_argument"
    # An activity is no run.
    (child_id,) = await spawn_children(engine, other, below, new_child(world))
    place = place_of(await world.task(child_id))
    assert (place.depth, place.root_run_id, place.run_id) == (2, run.id, below.id)


async def test_an_external_id_of_another_live_run_fails_the_child_and_not_the_report(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    first, second = new_run(world, "a", external_id="x"), new_run(world, "b", external_id="x")
    report = spawn_report(run, first, second, new_child(world, "c"))
    assert await spawn(engine, worker, report) == (None,)
    (entry,) = await ends(engine, run.id)
    content = entry.content
    assert (entry.key, content.state, content.reason) == ("b", "failed", "already_exists")
    assert content.error is not None
    assert first.new.id in content.error.message
    assert await world.state(second.new.id) is TaskState.FAILED
    # A later one finds the first in the store; a repeat changes nothing.
    await spawn_children(engine, worker, run, new_run(world, "d", external_id="x"))
    assert [each.key for each in await ends(engine, run.id)] == ["b", "d"]
    assert await spawn(engine, worker, report) == (None,)
    assert len(await ends(engine, run.id)) == 2


async def test_a_run_can_make_children_while_its_namespace_is_disabled(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    await world.database.execute(
        f"UPDATE namespaces SET is_disabled = (1 = 1) WHERE name = '{NAMESPACE}'"
    )
    await spawn_children(engine, worker, run, new_child(world))


async def test_what_a_worker_says_of_children_is_checked(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    child = new_child(world)
    bad = [
        (spawn_report(run), "children"),
        (spawn_report(run, child, child), "taskId"),
        (spawn_report(run, replace(child, external_id="x")), "externalId"),
        (spawn_report(run, replace(child, new=replace(child.new, idempotency_key="k"))), None),
        (spawn_report(run, group_key="map:x", group_total=2), "children"),
        (
            spawn_report(
                run,
                replace(child, close_policy=ClosePolicy.ABANDON),
                group_key="map:x",
                group_total=1,
            ),
            "closePolicy",
        ),
    ]
    for report, field in bad:
        with pytest.raises(InvalidArgument) as refused:
            await spawn(engine, worker, report)
        assert field is None or refused.value.fields["field"] == field
    many = [new_child(world) for _ in range(limits.SPAWN_CHILDREN_MAX + 1)]
    with pytest.raises(PayloadTooLarge):
        await spawn(engine, worker, spawn_report(run, *many))


async def test_a_thousand_children_are_stored_by_one_report(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run = await start(world, engine)
    (task,) = await world.claim(engine, worker)
    assert task.id == run
    children = [new_child(world, f"resize#{number}") for number in range(1_000)]
    await spawn_children(engine, worker, task, *children)
    assert len((await world.dump("tasks"))["tasks"]) == 1_001
