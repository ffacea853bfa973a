"""External ids: one live run has one, whoever starts it, and every call finds it by that."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.core.filter import RunFilter
from tenure.core.limits import EXTERNAL_ID_BYTES_MAX
from tenure.core.run.external_id import OnFinished, OnLive
from tenure.core.task.record import TaskState
from tenure.engine.engine import Engine
from tenure.engine.read import run as run_read
from tenure.engine.read.query import PageRequest
from tenure.engine.run.command import Started
from tenure.engine.task.command import FinishKind
from tenure.errors import AlreadyExists, IdempotencyConflict, InvalidArgument, NotFound
from tests.engine.run.runs import cancel, held_run, start, starting, terminate
from tests.engine.world import CURSOR_KEY, NAMESPACE, OTHER_NAMESPACE, World

ORDER = "order-42"


async def started(world: World, engine: Engine, **changes: Any) -> Started:
    return await engine.submit(starting(world, **{"external_id": ORDER, **changes}))


async def named(engine: Engine, text: str = ORDER, namespace: str = NAMESPACE) -> str:
    return await run_read.run_named(engine.store, namespace=namespace, run_id=f"external:{text}")


async def listed(engine: Engine, prefix: str) -> list[str]:
    page = await run_read.list_runs(
        engine.store,
        namespace=NAMESPACE,
        page=PageRequest(cursor_key=CURSOR_KEY, wants_total=True),
        where=RunFilter(external_id_prefix=prefix),
    )
    assert page.total_count == len(page.items)
    return [each.id for each in page.items]


async def test_a_second_start_gets_the_live_run(world: World, engine: Engine) -> None:
    first = await started(world, engine, input=b"1")
    assert first.is_new
    again = await started(world, engine, input=b"1")
    assert (again.task_id, again.is_new, again.content_differs) == (first.task_id, False, False)
    assert again.state is TaskState.PENDING
    assert await named(engine) == first.task_id
    assert len((await world.dump("tasks"))["tasks"]) == 1


@pytest.mark.parametrize(
    "changes", [{"input": b"2"}, {"type": "order"}, {"queue": "orders"}, {"input": None}]
)
async def test_a_run_with_other_content_is_told(
    world: World, engine: Engine, changes: dict[str, Any]
) -> None:
    first = await started(world, engine, input=b"1")
    again = await started(world, engine, **{"input": b"1", **changes})
    assert (again.task_id, again.content_differs) == (first.task_id, True)


async def test_a_live_run_may_be_a_refusal(world: World, engine: Engine) -> None:
    first = await started(world, engine)
    before = await world.dump()
    with pytest.raises(AlreadyExists, match=first.task_id) as refusal:
        await started(world, engine, on_live=OnLive.REJECT)
    assert "order-42" in str(refusal.value)
    assert await world.dump() == before


async def test_a_finished_run_leaves_its_id_to_the_next(world: World, engine: Engine) -> None:
    first = await started(world, engine)
    await cancel(engine, first.task_id)
    second = await started(world, engine)
    assert second.is_new
    assert await named(engine) == second.task_id
    await cancel(engine, second.task_id)
    assert await named(engine) == second.task_id


async def test_a_finished_run_may_be_the_answer_or_a_refusal(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run = await held_run(world, engine, worker, external_id=ORDER, input=b"1")
    await world.finish(engine, worker, run, FinishKind.SUCCEEDED, output=b"2")
    again = await started(world, engine, input=b"1", on_finished=OnFinished.RETURN)
    assert (again.task_id, again.state, again.is_new) == (run.id, TaskState.SUCCEEDED, False)
    assert not again.content_differs
    with pytest.raises(AlreadyExists, match="succeeded"):
        await started(world, engine, on_finished=OnFinished.REJECT)


async def test_a_run_of_another_namespace_has_an_id_of_its_own(
    world: World, engine: Engine
) -> None:
    first = await started(world, engine)
    other = await started(world, engine, namespace=OTHER_NAMESPACE)
    assert other.is_new
    assert await named(engine) == first.task_id
    assert await named(engine, namespace=OTHER_NAMESPACE) == other.task_id


async def test_an_id_that_nobody_has_is_not_found(world: World, engine: Engine) -> None:
    await started(world, engine)
    with pytest.raises(NotFound, match="Run external:order-43 was not found"):
        await named(engine, "order-43")
    for bad in ("", "a\0b", "x" * (EXTERNAL_ID_BYTES_MAX + 1)):
        with pytest.raises(InvalidArgument) as refusal:
            await named(engine, bad)
        assert refusal.value.fields["field"] == "runId"


async def test_an_external_id_is_read_where_a_run_is(world: World, engine: Engine) -> None:
    first = await started(world, engine)
    name = f"external:{ORDER}"
    view = await run_read.get_run(engine.store, namespace=NAMESPACE, run_id=name)
    assert view.task.id == first.task_id
    page = await run_read.read_journal(engine.store, namespace=NAMESPACE, run_id=name)
    assert page.end == 0


async def test_a_key_counts_before_an_external_id(world: World, engine: Engine) -> None:
    first = await started(world, engine, idempotency_key="k")
    again = await started(world, engine, idempotency_key="k", on_live=OnLive.REJECT)
    assert (again.task_id, again.is_new) == (first.task_id, False)
    with pytest.raises(IdempotencyConflict):
        await started(world, engine, idempotency_key="k", input=b"2")


async def test_a_resend_gets_its_own_run(world: World, engine: Engine) -> None:
    command = starting(world, external_id=ORDER, on_live=OnLive.REJECT)
    first = await engine.submit(command)
    again = await engine.submit(replace(command, is_resend=True))
    assert (again.task_id, again.is_new) == (first.task_id, False)


async def test_starts_in_one_batch_make_one_run(world: World, engine: Engine) -> None:
    answers = await asyncio.gather(*(started(world, engine) for _ in range(5)))
    assert len({each.task_id for each in answers}) == 1
    assert [each.is_new for each in answers].count(True) == 1
    assert len((await world.dump("tasks"))["tasks"]) == 1


async def test_an_end_and_a_start_in_one_batch_are_taken_in_their_order(
    world: World, engine: Engine
) -> None:
    first = await started(world, engine)
    _, second = await asyncio.gather(terminate(engine, first.task_id), started(world, engine))
    assert second.is_new
    assert await named(engine) == second.task_id


async def test_two_servers_make_one_run(world: World, engine: Engine) -> None:
    other = await world.start()
    for number in range(10):
        name = f"order-{number}"
        answers = await asyncio.gather(
            *(started(world, each, external_id=name) for each in (engine, other) for _ in range(3))
        )
        assert len({each.task_id for each in answers}) == 1
        assert [each.is_new for each in answers].count(True) == 1


async def test_an_end_at_another_server_is_seen(world: World, engine: Engine) -> None:
    other = await world.start()
    worker = await world.worker(engine)
    run = await held_run(world, engine, worker, external_id=ORDER)
    await world.finish(other, worker, run, FinishKind.SUCCEEDED)
    assert (await started(world, engine)).is_new


async def test_runs_are_listed_by_the_start_of_their_external_ids(
    world: World, engine: Engine
) -> None:
    one = await start(world, engine, external_id="order-1")
    two = await start(world, engine, external_id="order-2")
    await start(world, engine, external_id="Order-3")
    await start(world, engine)
    await cancel(engine, one)
    assert await listed(engine, "order-") == [two, one]
    assert await listed(engine, "order-1") == [one]
    assert await listed(engine, "%") == []
    with pytest.raises(InvalidArgument):
        await listed(engine, "x" * (EXTERNAL_ID_BYTES_MAX + 1))
