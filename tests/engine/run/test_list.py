"""Lists of runs: only runs, live and finished, newest first, with filters and pages."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.core.filter import RunFilter, TaskFilter
from tenure.core.run.record import Wait
from tenure.core.run.status import RunStatus, status_of
from tenure.engine.engine import Engine
from tenure.engine.read import query
from tenure.engine.read import run as run_read
from tenure.engine.read.query import PageRequest
from tenure.engine.task.command import FinishKind, PauseTask
from tenure.errors import InvalidArgument
from tests.engine.run.runs import cancel, give_up_slot, held_run, running_run, start
from tests.engine.world import CURSOR_KEY, FATAL, NAMESPACE, OTHER_NAMESPACE, World


async def listed(engine: Engine, **changes: Any) -> tuple[list[str], str, int | None]:
    """Return the ids of a page, the token of the next one, and the total."""
    where = RunFilter(**changes.pop("where", {}))
    namespace = changes.pop("namespace", NAMESPACE)
    page = PageRequest(cursor_key=CURSOR_KEY, wants_total=True, **changes)
    found = await run_read.list_runs(engine.store, namespace=namespace, page=page, where=where)
    return [each.id for each in found.items], found.next_page_token, found.total_count


async def test_only_runs_are_listed_newest_first(world: World, engine: Engine) -> None:
    runs = []
    for _ in range(3):
        await world.add(engine, 2)
        runs.append(await start(world, engine))
    await cancel(engine, runs[1])
    assert await listed(engine) == (runs[::-1], "", 3)
    assert await listed(engine, namespace=OTHER_NAMESPACE) == ([], "", 0)


async def test_pages_follow_each_other(world: World, engine: Engine) -> None:
    runs = [await start(world, engine) for _ in range(5)]
    await cancel(engine, runs[3])
    first, token, total = await listed(engine, size=3)
    assert (first, total) == (runs[:1:-1], 5)
    assert await listed(engine, size=3, token=token) == (runs[1::-1], "", 5)


async def test_a_filter_narrows_the_list(world: World, engine: Engine) -> None:
    mail = await start(world, engine, labels={"team": "a", "stage": "live"})
    order = await start(world, engine, type="order", queue="orders", labels={"team": "a"})
    await cancel(engine, mail)
    assert (await listed(engine, where={"type": "order"}))[0] == [order]
    assert (await listed(engine, where={"queue": "orders"}))[0] == [order]
    assert await listed(engine, where={"labels": {"team": "a"}}) == ([order, mail], "", 2)
    assert await listed(engine, where={"labels": {"team": "a", "stage": "live"}}) == ([mail], "", 1)
    assert (await listed(engine, where={"labels": {"team": "b"}}))[0] == []
    for wrong in ({"type": "a b"}, {"created_from_ms": -1}, {"labels": {"a b": ""}}):
        with pytest.raises(InvalidArgument):
            await listed(engine, where=wrong)


async def test_runs_without_labels_are_found_only_without_that_filter(
    world: World, engine: Engine
) -> None:
    run = await start(world, engine)
    assert (await listed(engine))[0] == [run]
    assert (await listed(engine, where={"labels": {"team": "a"}}))[0] == []


async def test_a_run_is_created_from_an_instant_on_and_before_another(
    world: World, engine: Engine
) -> None:
    first_ms = world.clock.now_ms()
    first = await start(world, engine)
    await world.advance(1_000)
    second = await start(world, engine)
    second_ms = first_ms + 1_000
    assert (await listed(engine, where={"created_from_ms": second_ms}))[0] == [second]
    assert await listed(engine, where={"created_to_ms": second_ms}) == ([first], "", 1)
    between = {"created_from_ms": first_ms, "created_to_ms": first_ms}
    assert (await listed(engine, where=between))[0] == []


async def test_each_status_has_its_runs(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    found = dict.fromkeys(RunStatus, "")
    parked = await running_run(world, engine, worker)
    await world.finish(engine, worker, parked, FinishKind.PARKED, error=FATAL)
    found[RunStatus.PARKED] = parked.id
    wake = {"wake_at_ms": world.clock.now_ms() + 60_000, "wake_key": "sleep"}
    timer_wait, signal_wait = Wait("timer", "sleep"), Wait("signal", "approve")
    for status, wish in (
        (RunStatus.SLEEPING, {**wake, "waits": (timer_wait,), "wait_count": 1}),
        (RunStatus.WAITING, {**wake, "waits": (timer_wait, signal_wait), "wait_count": 2}),
    ):
        run = await running_run(world, engine, worker)
        await give_up_slot(world, engine, worker, run, **wish)
        found[status] = run.id
    for status, kind in (
        (RunStatus.COMPLETED, FinishKind.SUCCEEDED),
        (RunStatus.FAILED, FinishKind.FAILED),
    ):
        run = await running_run(world, engine, worker)
        await world.finish(engine, worker, run, kind, error=FATAL)
        found[status] = run.id
    cancelling = await running_run(world, engine, worker)
    await cancel(engine, cancelling.id)
    found[RunStatus.CANCELLING] = cancelling.id
    held = await held_run(world, engine, worker)
    found[RunStatus.RUNNING] = held.id
    found[RunStatus.PENDING], found[RunStatus.PAUSED], found[RunStatus.CANCELLED] = [
        await start(world, engine) for _ in range(3)
    ]
    await engine.submit(PauseTask(namespace=NAMESPACE, task_id=found[RunStatus.PAUSED]))
    await cancel(engine, found[RunStatus.CANCELLED])
    for status, run_id in found.items():
        assert await listed(engine, where={"status": status}) == ([run_id], "", 1), status
        shown = await run_read.get_run(engine.store, namespace=NAMESPACE, run_id=run_id)
        assert status_of(shown.task) is status


async def test_a_list_of_tasks_has_the_runs_too_and_other_cursors(
    world: World, engine: Engine
) -> None:
    runs = [await start(world, engine) for _ in range(2)]
    page = PageRequest(cursor_key=CURSOR_KEY, size=1)
    tasks = await query.list_tasks(engine.store, namespace=NAMESPACE, page=page, where=TaskFilter())
    assert [each.id for each in tasks.items] == runs[:0:-1]
    with pytest.raises(InvalidArgument):
        await listed(engine, size=1, token=tasks.next_page_token)


async def test_a_cursor_is_bound_to_its_filter(world: World, engine: Engine) -> None:
    for _ in range(2):
        await start(world, engine, labels={"team": "a"})
    where = {"labels": {"team": "a"}, "created_from_ms": 0}
    first, token, _ = await listed(engine, size=1, where=where)
    assert len((await listed(engine, size=1, token=token, where=where))[0]) == 1
    for other in ({}, {"labels": {"team": "a"}}, {**where, "status": RunStatus.PENDING}):
        with pytest.raises(InvalidArgument):
            await listed(engine, size=1, token=token, where=other)
    assert first
