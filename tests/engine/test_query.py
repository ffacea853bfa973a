"""The reads: tasks, lists and cursors, attempts, workers with health, queue counts."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.core.attempt import Outcome
from tenure.core.health import Health
from tenure.core.queue import Queue
from tenure.core.task_record import TaskState
from tenure.core.worker import WorkerStatus
from tenure.engine import command as c
from tenure.engine import query
from tenure.engine.engine import Engine
from tenure.errors import InvalidArgument, NotFound, Unavailable
from tenure.store.failure import Conflict, Lost
from tests.engine.world import CURSOR_KEY, NAMESPACE, OTHER_NAMESPACE, World


def page(size: int = 0, token: str = "", key: bytes = CURSOR_KEY) -> query.PageRequest:
    return query.PageRequest(cursor_key=key, size=size, token=token)


async def listed(engine: Engine, **options: Any) -> query.Page[Any]:
    fields = {"namespace": NAMESPACE, "page": page(), **options}
    return await query.list_tasks(engine.store, **fields)


async def all_pages(engine: Engine, size: int, **options: Any) -> list[str]:
    ids: list[str] = []
    token = ""
    while True:
        found = await listed(engine, page=page(size, token), **options)
        assert len(found.items) <= size
        ids += [task.id for task in found.items]
        token = found.next_page_token
        if not token:
            return ids


class TestGetTask:
    async def test_a_task_is_found_live_and_finished(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        task = await world.held(engine, worker, input=b"in")
        key = {"namespace": NAMESPACE, "task_id": task.id}
        assert (await query.get_task(engine.store, **key)).state is TaskState.DISPATCHED
        await world.finish(engine, worker, task, output=b"out")
        found = await query.get_task(engine.store, **key)
        assert (found.state, found.input, found.output) == (TaskState.SUCCEEDED, b"in", b"out")

    async def test_a_bare_namespace_means_its_default_workspace(
        self,
        world: World,
        engine: Engine,
    ) -> None:
        (task_id,) = await world.add(engine)
        found = await query.get_task(engine.store, namespace="acme", task_id=task_id)
        assert found.id == task_id

    async def test_what_is_not_there_is_not_found_in_the_same_words_everywhere(
        self,
        world: World,
        engine: Engine,
    ) -> None:
        (task_id,) = await world.add(engine)
        messages = set()
        for namespace in (OTHER_NAMESPACE, "nobody/default"):
            for read in (query.get_task, query.list_attempts):
                with pytest.raises(NotFound) as caught:
                    await read(engine.store, namespace=namespace, task_id=task_id)
                messages.add(caught.value.message)
        assert messages == {f"Task {task_id} was not found."}


class TestListTasks:
    async def test_tasks_come_newest_first_over_both_tables(
        self,
        world: World,
        engine: Engine,
    ) -> None:
        worker = await world.worker(engine)
        ids = await world.add(engine, 7)
        for task in (await world.claim(engine, worker))[::2]:
            await world.finish(engine, worker, task)
        found = await listed(engine)
        assert [task.id for task in found.items] == ids[::-1]
        assert found.next_page_token == ""

    @pytest.mark.parametrize("size", [1, 3, 7, 8])
    async def test_pages_are_a_partition_of_the_list(
        self,
        world: World,
        engine: Engine,
        size: int,
    ) -> None:
        ids = await world.add(engine, 7)
        assert await all_pages(engine, size) == ids[::-1]

    async def test_a_row_that_moves_between_two_pages_is_neither_doubled_nor_missed(
        self,
        world: World,
        engine: Engine,
    ) -> None:
        worker = await world.worker(engine)
        ids = await world.add(engine, 6)
        first = await listed(engine, page=page(3))
        for task in await world.claim(engine, worker):
            await world.finish(engine, worker, task)
        await world.add(engine)
        second = await listed(engine, page=page(3, first.next_page_token))
        assert [task.id for task in (*first.items, *second.items)] == ids[::-1]

    async def test_filters_are_combined(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        mails = await world.add(engine, 3)
        await world.add(engine, 2, type="sms")
        await world.add(engine, 2, queue="slow")
        (task,) = await world.claim(engine, worker, max_tasks=1)
        await world.finish(engine, worker, task)
        assert await all_pages(engine, 2, type_="mail", queue="default") == mails[::-1]
        assert await all_pages(engine, 2, state=TaskState.SUCCEEDED) == [task.id]
        wanted = {"state": TaskState.PENDING, "type_": "mail", "queue": "default"}
        assert await all_pages(engine, 2, **wanted) == mails[:0:-1]
        assert await all_pages(engine, 2, state=TaskState.PAUSED) == []

    async def test_another_namespace_is_not_listed(self, world: World, engine: Engine) -> None:
        await world.add(engine, 2)
        assert (await listed(engine, namespace=OTHER_NAMESPACE)).items == ()
        with pytest.raises(NotFound):
            await listed(engine, namespace="nobody/default")

    async def test_a_page_has_twenty_by_default_and_a_hundred_at_most(
        self,
        world: World,
        engine: Engine,
    ) -> None:
        await world.add(engine, 101)
        assert len((await listed(engine)).items) == 20
        assert len((await listed(engine, page=page(5_000))).items) == 100

    async def test_a_cursor_is_good_for_its_own_list_only(
        self,
        world: World,
        engine: Engine,
    ) -> None:
        await world.add(engine, 3)
        await world.worker(engine)
        await world.worker(engine)
        token = (await listed(engine, page=page(1))).next_page_token
        foreign: list[Any] = [
            listed(engine, page=page(1, token), namespace=OTHER_NAMESPACE),
            listed(engine, page=page(1, token), queue="default"),
            listed(engine, page=page(1, token), state=TaskState.PENDING),
            listed(engine, page=page(1, token, b"another server's")),
            listed(engine, page=page(1, token[:-2] + "AA")),
            listed(engine, page=page(1, "rubbish")),
            listed(engine, page=page(1, "\ud800")),
            listed(engine, page=page(1, "x" * 5_000)),
            query.list_workers(engine.store, namespace=NAMESPACE, page=page(1, token)),
        ]
        for read in foreign:
            with pytest.raises(InvalidArgument) as caught:
                await read
            assert caught.value.fields == {"field": "page_token"}

    @pytest.mark.parametrize(
        ("options", "field"),
        [
            ({"queue": "a b"}, "queue"),
            ({"type_": "\0"}, "type"),
            ({"namespace": "a/b/c"}, "namespace"),
            ({"page": page(-1)}, "page_size"),
            ({"page": page(2**63)}, "page_size"),
        ],
    )
    async def test_a_bad_filter_is_named(
        self,
        engine: Engine,
        options: dict[str, Any],
        field: str,
    ) -> None:
        with pytest.raises(InvalidArgument) as caught:
            await listed(engine, **options)
        assert caught.value.fields == {"field": field}


class TestAttempts:
    async def test_a_task_that_was_never_handed_out_has_none(
        self,
        world: World,
        engine: Engine,
    ) -> None:
        (task_id,) = await world.add(engine)
        await engine.submit(c.CancelTask(namespace=NAMESPACE, task_id=task_id))
        assert await query.list_attempts(engine.store, namespace=NAMESPACE, task_id=task_id) == ()

    async def test_an_ended_attempt_of_a_cancelled_task_is_listed_once(
        self,
        world: World,
        engine: Engine,
    ) -> None:
        worker = await world.worker(engine)
        task = await world.held(engine, worker)
        await world.finish(engine, worker, task, c.FinishKind.RELEASED)
        await engine.submit(c.CancelTask(namespace=NAMESPACE, task_id=task.id))
        found = await query.list_attempts(engine.store, namespace=NAMESPACE, task_id=task.id)
        assert [(each.number, each.outcome) for each in found] == [(1, Outcome.RELEASED)]


class TestWorkers:
    async def test_a_worker_has_its_lease_and_health_while_it_is_active(
        self,
        world: World,
        engine: Engine,
    ) -> None:
        worker = await world.worker(engine, lease_ms=3_000)
        key: dict[str, Any] = {"namespace": NAMESPACE, "worker_id": worker}
        assert (await query.get_worker(engine.store, **key)).health is Health.HEALTHY
        deaf = await query.get_worker(engine.store, **key, deaf={worker})
        assert deaf.health is Health.DEAF
        await world.beat(engine, worker, 1, loop_lag_ms=1_500)
        assert (await query.get_worker(engine.store, **key)).health is Health.BLOCKED
        await world.beat(engine, worker, 2, stuck_count=1)
        assert (await query.get_worker(engine.store, **key)).health is Health.STUCK
        await world.advance(2_000)
        assert (await query.get_worker(engine.store, **key)).health is Health.LATE
        await engine.submit(c.EvictWorker(namespace=NAMESPACE, worker_id=worker))
        view = await query.get_worker(engine.store, **key)
        assert (view.worker.status, view.lease, view.health) == (WorkerStatus.OFFLINE, None, None)

    async def test_workers_are_listed_newest_first_with_filters_and_pages(
        self,
        world: World,
        engine: Engine,
    ) -> None:
        workers = [await world.worker(engine) for _ in range(4)]
        slow = await world.worker(engine, queue="slow")
        await engine.submit(c.DrainWorker(namespace=NAMESPACE, worker_id=workers[1]))
        read = query.list_workers
        first = await read(engine.store, namespace=NAMESPACE, page=page(3))
        rest = await read(engine.store, namespace=NAMESPACE, page=page(3, first.next_page_token))
        ids = [view.worker.id for view in (*first.items, *rest.items)]
        assert ids == [slow, *workers[::-1]]
        assert rest.next_page_token == ""
        draining = await read(
            engine.store, namespace=NAMESPACE, page=page(), status=WorkerStatus.DRAINING
        )
        assert [view.worker.id for view in draining.items] == [workers[1]]
        queue = await read(engine.store, namespace=NAMESPACE, page=page(), queue="slow")
        assert [view.worker.id for view in queue.items] == [slow]

    async def test_a_foreign_or_unknown_worker_is_not_found(
        self,
        world: World,
        engine: Engine,
    ) -> None:
        worker = await world.worker(engine)
        for namespace, worker_id in ((OTHER_NAMESPACE, worker), (NAMESPACE, world.clock.new_id())):
            with pytest.raises(NotFound):
                await query.get_worker(engine.store, namespace=namespace, worker_id=worker_id)


class TestQueues:
    async def test_queues_have_brakes_and_counts_by_type_and_state(
        self,
        world: World,
        engine: Engine,
    ) -> None:
        worker = await world.worker(engine)
        await engine.submit(c.SetQueue(namespace=NAMESPACE, name="empty", is_paused=True))
        await world.add(engine, 3)
        await world.add(engine, 2, type="sms")
        await world.claim(engine, worker, max_tasks=1)
        queues = await query.list_queues(engine.store, namespace=NAMESPACE)
        assert [view.queue.name for view in queues] == ["default", "empty"]
        assert queues[0].queue == Queue(NAMESPACE, "default")
        assert queues[0].counts == {
            "mail": {TaskState.DISPATCHED: 1, TaskState.PENDING: 2},
            "sms": {TaskState.PENDING: 2},
        }
        assert queues[0].count(TaskState.PENDING) == 4
        assert (queues[1].queue.is_paused, queues[1].counts) == (True, {})
        assert await query.list_queues(engine.store, namespace=OTHER_NAMESPACE) == ()


@pytest.mark.parametrize(
    ("error", "reason"),
    [(Lost("cut"), "store_unreachable"), (Conflict("busy"), "conflict")],
)
async def test_a_read_that_cannot_be_done_is_unavailable(
    world: World,
    engine: Engine,
    error: Exception,
    reason: str,
) -> None:
    (task_id,) = await world.add(engine)
    world.faults.raise_at("read_tasks", error)
    with pytest.raises(Unavailable) as caught:
        await world.task(task_id)
    assert caught.value.fields["reason"] == reason
    assert (await world.task(task_id)).id == task_id
