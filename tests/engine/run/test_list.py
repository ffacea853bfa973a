"""Lists of runs: only runs, live and finished, newest first, with filters and pages."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.core.filter import RunFilter, TaskFilter
from tenure.core.task.record import TaskState
from tenure.engine.engine import Engine
from tenure.engine.read import query
from tenure.engine.read import run as run_read
from tenure.engine.read.query import PageRequest
from tenure.errors import InvalidArgument
from tests.engine.run.runs import cancel, start
from tests.engine.world import CURSOR_KEY, NAMESPACE, OTHER_NAMESPACE, World


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
    mail = await start(world, engine)
    order = await start(world, engine, type="order", queue="orders")
    await cancel(engine, mail)
    assert (await listed(engine, where={"type": "order"}))[0] == [order]
    assert (await listed(engine, where={"queue": "orders"}))[0] == [order]
    assert (await listed(engine, where={"state": TaskState.CANCELLED}))[0] == [mail]
    assert (await listed(engine, where={"state": TaskState.SUCCEEDED}))[0] == []
    assert (await listed(engine, where={"state": TaskState.PENDING}))[0] == [order]
    with pytest.raises(InvalidArgument):
        await listed(engine, where={"type": "a b"})


async def test_a_list_of_tasks_has_the_runs_too_and_other_cursors(
    world: World, engine: Engine
) -> None:
    runs = [await start(world, engine) for _ in range(2)]
    page = PageRequest(cursor_key=CURSOR_KEY, size=1)
    tasks = await query.list_tasks(engine.store, namespace=NAMESPACE, page=page, where=TaskFilter())
    assert [each.id for each in tasks.items] == runs[:0:-1]
    with pytest.raises(InvalidArgument):
        await listed(engine, size=1, token=tasks.next_page_token)
