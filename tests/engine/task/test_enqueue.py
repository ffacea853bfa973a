"""Enqueue: single and bulk, idempotency keys, resends, delays, priorities and labels."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.core.limits import ENQUEUE_DECIDED_MS
from tenure.core.task.record import Line, NewTask, TaskState
from tenure.engine.engine import Engine
from tenure.engine.services.due_tasks import DueTasks
from tenure.engine.services.retention import Retention
from tenure.engine.task import command as c
from tenure.errors import AlreadyExists, IdempotencyConflict, NotFound
from tests.engine.world import (
    DAY_MS,
    HOUR_MS,
    NAMESPACE,
    OTHER_NAMESPACE,
    QUEUE,
    SPEC,
    World,
    codes,
    spec,
)


async def test_an_enqueued_task_is_pending_and_has_all_that_was_asked_for(
    world: World, engine: Engine
) -> None:
    wished = spec(heartbeat_timeout_ms=5_000, encoding="json", resources={"gpu": "1"})
    new = world.new(spec=wished, input=b"\x00\xff", priority=2, labels={"team": "Köln"})
    (answer,) = await world.enqueue(engine, new)
    assert answer == c.Enqueued(new.id, TaskState.PENDING, is_new=True)
    task = await world.task(new.id)
    assert (task.state, task.line, task.attempt) == (TaskState.PENDING, Line.FRESH, 0)
    assert (task.spec, task.input, task.priority) == (wished, b"\x00\xff", 2)
    assert task.labels == {"team": "Köln"}
    assert (task.created_at_ms, task.run_at_ms) == (world.clock.now_ms(),) * 2


async def test_a_bulk_enqueue_answers_each_task_in_its_order(world: World, engine: Engine) -> None:
    new = [world.new() for _ in range(50)]
    answers = await world.enqueue(engine, *new)
    assert [each.task_id for each in answers] == [each.id for each in new]
    assert len((await world.dump("tasks"))["tasks"]) == 50


@pytest.mark.parametrize("fault", ["conflict", "exists"])
async def test_a_bulk_enqueue_is_all_or_nothing(world: World, engine: Engine, fault: str) -> None:
    first = world.new(idempotency_key="k", input=b"1")
    await world.enqueue(engine, first)
    before = await world.dump()
    bad = world.new(idempotency_key="k", input=b"2")
    error: type[Exception] = IdempotencyConflict
    if fault == "exists":
        bad = NewTask(id=first.id, type="mail", queue=QUEUE, spec=SPEC)
        error = AlreadyExists
    with pytest.raises(error):
        await world.enqueue(engine, world.new(), bad, world.new())
    assert await world.dump() == before


async def test_a_refused_enqueue_disturbs_no_neighbour_of_its_batch(
    world: World, engine: Engine
) -> None:
    new = world.new()
    await world.enqueue(engine, new)
    answers: Any = await asyncio.gather(
        world.enqueue(engine, world.new()),
        world.enqueue(engine, new),
        world.enqueue(engine, world.new(), namespace="nobody/default"),
        world.enqueue(engine, world.new()),
        return_exceptions=True,
    )
    assert isinstance(answers[1], AlreadyExists)
    assert isinstance(answers[2], NotFound)
    assert [answers[0][0].is_new, answers[3][0].is_new] == [True, True]
    assert len((await world.dump("tasks"))["tasks"]) == 3


async def test_of_two_unmarked_requests_for_one_id_in_a_batch_the_first_counts(
    world: World, engine: Engine
) -> None:
    new = world.new()
    commands = [c.EnqueueTasks(namespace=NAMESPACE, tasks=(new,)) for _ in range(2)]
    answers: Any = await asyncio.gather(*map(engine.submit, commands), return_exceptions=True)
    assert answers[0][0].is_new
    assert isinstance(answers[1], AlreadyExists)


async def test_an_id_may_be_used_in_two_namespaces(world: World, engine: Engine) -> None:
    new = world.new()
    await world.enqueue(engine, new)
    (answer,) = await world.enqueue(engine, new, namespace=OTHER_NAMESPACE)
    assert answer.is_new


async def test_an_id_that_is_used_again_unmarked_disturbs_nobody(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    first = await world.held(engine, worker)
    await world.finish(engine, worker, first, output=b"first")
    again = NewTask(id=first.id, type="mail", queue=QUEUE, spec=spec(start_to_close_ms=1_000))
    await world.enqueue(engine, again, world.new(spec=again.spec))
    tasks = await world.claim(engine, worker)
    assert len(tasks) == 2
    await world.advance(1_000)
    assert (await world.round(DueTasks(), engine)).count == 2
    await world.advance(5_000)
    await world.round(DueTasks(), engine)
    for task in await world.claim(engine, worker):
        assert codes([await world.finish(engine, worker, task)]) == ["succeeded"]
    assert (await world.dump("tasks"))["tasks"] == []


class TestResend:
    async def test_a_resend_of_what_was_stored_returns_the_first_task(
        self, world: World, engine: Engine
    ) -> None:
        new = world.new()
        await world.enqueue(engine, new)
        (answer,) = await world.enqueue(engine, new, is_resend=True)
        assert answer == c.Enqueued(new.id, TaskState.PENDING, is_new=False)
        assert len((await world.dump("tasks"))["tasks"]) == 1

    async def test_a_resend_of_what_was_never_stored_stores_it(
        self, world: World, engine: Engine
    ) -> None:
        new = world.new()
        await world.advance(ENQUEUE_DECIDED_MS)
        (answer,) = await world.enqueue(engine, new, is_resend=True)
        assert answer.is_new

    async def test_a_resend_finds_a_task_that_has_finished(
        self, world: World, engine: Engine
    ) -> None:
        new = world.new()
        await world.enqueue(engine, new)
        await engine.submit(c.CancelTask(namespace=NAMESPACE, task_id=new.id))
        (answer,) = await world.enqueue(engine, new, is_resend=True)
        assert answer == c.Enqueued(new.id, TaskState.CANCELLED, is_new=False)

    async def test_the_same_resend_twice_in_one_batch_stores_it_once(
        self, world: World, engine: Engine
    ) -> None:
        new = world.new()
        await world.advance(ENQUEUE_DECIDED_MS)
        answers = await asyncio.gather(
            world.enqueue(engine, new, is_resend=True), world.enqueue(engine, new, is_resend=True)
        )
        assert [each[0].is_new for each in answers] == [True, False]

    async def test_a_partly_stored_bulk_is_completed(self, world: World, engine: Engine) -> None:
        stored, missing = world.new(), world.new()
        await world.enqueue(engine, stored)
        await world.advance(ENQUEUE_DECIDED_MS)
        answers = await world.enqueue(engine, stored, missing, is_resend=True)
        assert [each.is_new for each in answers] == [False, True]


class TestIdempotencyKeys:
    async def test_the_same_key_and_content_returns_the_first_task(
        self, world: World, engine: Engine
    ) -> None:
        first = world.new(idempotency_key="order 7", input=b"x", labels={"a": "1", "b": "2"})
        again = world.new(idempotency_key="order 7", input=b"x", labels={"b": "2", "a": "1"})
        await world.enqueue(engine, first)
        (answer,) = await world.enqueue(engine, again)
        assert answer == c.Enqueued(first.id, TaskState.PENDING, is_new=False)
        assert len((await world.dump("tasks"))["tasks"]) == 1

    @pytest.mark.parametrize(
        ("other", "field"),
        [
            ({"input": b"other"}, "input"),
            ({"type": "sms"}, "type"),
            ({"queue": "slow"}, "queue"),
            ({"priority": 1}, "priority"),
            ({"labels": {"a": "1"}}, "labels"),
            ({"spec": spec(heartbeat_timeout_ms=1_000)}, "heartbeatTimeoutMs"),
        ],
        ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
    )
    async def test_the_same_key_with_other_content_is_a_conflict_that_names_the_field(
        self, world: World, engine: Engine, other: dict[str, Any], field: str
    ) -> None:
        first = world.new(idempotency_key="k")
        await world.enqueue(engine, first)
        before = await world.dump()
        with pytest.raises(IdempotencyConflict) as caught:
            await world.enqueue(engine, world.new(idempotency_key="k", **other))
        assert caught.value.fields == {"task_id": first.id, "field": field}
        assert f"another value of {field}." in caught.value.message
        assert "other'" not in caught.value.message
        assert await world.dump() == before

    async def test_a_conflict_names_the_field_when_the_task_has_ended(
        self, world: World, engine: Engine
    ) -> None:
        first = world.new(idempotency_key="k", input=b"1")
        await world.enqueue(engine, first)
        await engine.submit(c.CancelTask(namespace=NAMESPACE, task_id=first.id))
        with pytest.raises(IdempotencyConflict) as caught:
            await world.enqueue(engine, world.new(idempotency_key="k", input=b"2", priority=1))
        assert caught.value.fields == {"task_id": first.id, "field": "priority"}
        assert "other values of priority, input." in caught.value.message

    async def test_a_conflict_inside_of_a_bulk_names_the_field(
        self, world: World, engine: Engine
    ) -> None:
        first = world.new(idempotency_key="k", input=b"1")
        with pytest.raises(IdempotencyConflict) as caught:
            await world.enqueue(engine, first, world.new(idempotency_key="k", input=b"2"))
        assert caught.value.fields == {"task_id": first.id, "field": "input"}

    async def test_a_key_belongs_to_its_namespace(self, world: World, engine: Engine) -> None:
        await world.enqueue(engine, world.new(idempotency_key="k", input=b"1"))
        new = world.new(idempotency_key="k", input=b"2")
        (answer,) = await world.enqueue(engine, new, namespace=OTHER_NAMESPACE)
        assert answer.is_new

    async def test_one_key_twice_in_a_bulk_makes_one_task(
        self, world: World, engine: Engine
    ) -> None:
        first, second = world.new(idempotency_key="k"), world.new(idempotency_key="k")
        answers = await world.enqueue(engine, first, second)
        assert [(each.task_id, each.is_new) for each in answers] == [
            (first.id, True),
            (first.id, False),
        ]

    async def test_one_key_in_two_commands_of_a_batch_makes_one_task(
        self, world: World, engine: Engine
    ) -> None:
        first, second = world.new(idempotency_key="k"), world.new(idempotency_key="k")
        answers = await asyncio.gather(world.enqueue(engine, first), world.enqueue(engine, second))
        assert [each[0].task_id for each in answers] == [first.id, first.id]

    async def test_a_key_outlives_its_task_by_a_day(self, world: World, engine: Engine) -> None:
        first = world.new(idempotency_key="k", run_at_ms=world.clock.now_ms() + 3 * DAY_MS)
        await world.enqueue(engine, first)
        await world.advance(2 * DAY_MS)
        await engine.submit(c.CancelTask(namespace=NAMESPACE, task_id=first.id))
        await world.advance(DAY_MS - 1)
        await Retention().run_once(engine)
        same = world.new(idempotency_key="k", run_at_ms=first.run_at_ms)
        (answer,) = await world.enqueue(engine, same)
        assert answer == c.Enqueued(first.id, TaskState.CANCELLED, is_new=False)
        await world.advance(1)
        (answer,) = await world.enqueue(engine, world.new(idempotency_key="k", input=b"new"))
        assert answer.is_new

    async def test_retention_forgets_keys_whose_time_is_over_and_no_others(
        self, world: World, engine: Engine
    ) -> None:
        old, live = world.new(idempotency_key="old"), world.new(idempotency_key="live")
        await world.enqueue(engine, old, live)
        await engine.submit(c.CancelTask(namespace=NAMESPACE, task_id=old.id))
        await world.advance(DAY_MS + 1)
        await world.enqueue(engine, world.new(idempotency_key="young"))
        await Retention().run_once(engine)
        rows = await world.database.rows("SELECT key FROM idempotency_keys ORDER BY key")
        assert [row["key"] for row in rows] == ["live", "young"]

    @pytest.mark.parametrize("dialect", ["postgres"], indirect=True)
    @pytest.mark.parametrize("is_same", [True, False])
    async def test_of_two_engines_that_race_for_one_key_one_wins(
        self, world: World, engine: Engine, is_same: bool
    ) -> None:
        other = await world.start()
        first = world.new(idempotency_key="k", input=b"1")
        second = world.new(idempotency_key="k", input=b"1" if is_same else b"2")
        answers: Any = await asyncio.gather(
            world.enqueue(engine, first), world.enqueue(other, second), return_exceptions=True
        )
        tasks = (await world.dump("tasks"))["tasks"]
        assert len(tasks) == 1
        if is_same:
            assert len({each[0].task_id for each in answers}) == 1
            assert sorted(each[0].is_new for each in answers) == [False, True]
        else:
            refused = [each for each in answers if isinstance(each, IdempotencyConflict)]
            assert len(refused) == 1
            assert refused[0].fields["task_id"] in {first.id, second.id}


class TestOrder:
    async def test_a_delayed_task_is_claimable_from_its_instant_on(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        (task_id,) = await world.add(engine, run_at_ms=world.clock.now_ms() + HOUR_MS)
        assert (await world.task(task_id)).line is Line.NONE
        await world.advance(HOUR_MS - 1)
        assert (await DueTasks().run_once(engine)).count == 0
        assert await world.claim(engine, worker) == ()
        await world.advance(1)
        assert (await DueTasks().run_once(engine)).count == 1
        await world.beat(engine, worker, 1)
        assert [task.id for task in await world.claim(engine, worker)] == [task_id]

    async def test_an_instant_in_the_past_means_now(self, world: World, engine: Engine) -> None:
        (task_id,) = await world.add(engine, run_at_ms=world.clock.now_ms() - HOUR_MS)
        task = await world.task(task_id)
        assert (task.line, task.run_at_ms) == (Line.FRESH, world.clock.now_ms())

    async def test_a_poll_that_waits_gets_a_delayed_task_when_it_is_due(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        poll = world.poll(engine, worker)
        (task_id,) = await world.add(engine, run_at_ms=world.clock.now_ms() + 1_000)
        await world.settle(engine)
        assert not poll.done()
        await world.advance(1_000)
        await world.round(DueTasks(), engine)
        assert [task.id for task in await poll] == [task_id]

    async def test_tasks_come_by_priority_then_time_then_id(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        late = await world.add(engine, 2, priority=9)
        soon = await world.add(engine, 2, priority=0)
        await world.advance(1)
        middle = await world.add(engine, 2)
        sooner = await world.add(engine, 1, priority=0)
        claimed = await world.claim(engine, worker)
        assert [task.id for task in claimed] == [*soon, *sooner, *middle, *late]

    async def test_a_task_that_comes_back_keeps_its_place(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        first = await world.held(engine, worker)
        await world.advance(5)
        (second,) = await world.add(engine)
        await world.finish(engine, worker, first, c.FinishKind.RELEASED)
        claimed = await world.claim(engine, worker)
        assert [task.id for task in claimed] == [first.id, second]
