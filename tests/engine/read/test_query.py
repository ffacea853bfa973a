"""The reads: tasks, lists and cursors, attempts, workers with health, queue counts."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.core.filter import TaskFilter, WorkerFilter
from tenure.core.queue import Queue
from tenure.core.task.attempt import Outcome
from tenure.core.task.record import TaskState
from tenure.core.worker.health import Health
from tenure.core.worker.record import WorkerMode, WorkerStatus
from tenure.engine.access.command import CreateNamespace, SetQueue
from tenure.engine.engine import Engine
from tenure.engine.read import access as access_read
from tenure.engine.read import query
from tenure.engine.task.command import CancelTask, FinishKind
from tenure.engine.worker.command import DrainWorker, EvictWorker
from tenure.errors import InvalidArgument, NotFound, Unavailable
from tenure.store.failure import Conflict, Lost
from tests.engine.world import CURSOR_KEY, NAMESPACE, OTHER_NAMESPACE, World


def page(size: int = 0, token: str = "", key: bytes = CURSOR_KEY) -> query.PageRequest:
    return query.PageRequest(cursor_key=key, size=size, token=token)


async def listed(engine: Engine, **options: Any) -> query.Page[Any]:
    fields = {"namespace": NAMESPACE, "page": page(), **options}
    place = {name: fields.pop(name) for name in ("namespace", "page")}
    return await query.list_tasks(engine.store, **place, where=TaskFilter(**fields))


async def listed_workers(engine: Engine, **options: Any) -> query.Page[query.WorkerView]:
    fields = {"namespace": NAMESPACE, "page": page(), **options}
    return await query.list_workers(engine.store, **fields)


async def listed_queues(engine: Engine, **options: Any) -> query.Page[query.QueueView]:
    fields = {"namespace": NAMESPACE, "page": page(), **options}
    return await query.list_queues(engine.store, **fields)


async def worker_ids(engine: Engine, deaf: Collection[str] = (), **chosen: Any) -> list[str]:
    where = WorkerFilter(**chosen)
    found = await listed_workers(engine, page=page(100), where=where, deaf=deaf)
    return [view.worker.id for view in found.items]


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
        self, world: World, engine: Engine
    ) -> None:
        (task_id,) = await world.add(engine)
        found = await query.get_task(engine.store, namespace="acme", task_id=task_id)
        assert found.id == task_id

    async def test_what_is_not_there_is_not_found_in_the_same_words_everywhere(
        self, world: World, engine: Engine
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
        self, world: World, engine: Engine
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
        self, world: World, engine: Engine, size: int
    ) -> None:
        ids = await world.add(engine, 7)
        assert await all_pages(engine, size) == ids[::-1]

    async def test_a_row_that_moves_between_two_pages_is_neither_doubled_nor_missed(
        self, world: World, engine: Engine
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
        assert await all_pages(engine, 2, type="mail", queue="default") == mails[::-1]
        assert await all_pages(engine, 2, state=TaskState.SUCCEEDED) == [task.id]
        wanted = {"state": TaskState.PENDING, "type": "mail", "queue": "default"}
        assert await all_pages(engine, 2, **wanted) == mails[:0:-1]
        assert await all_pages(engine, 2, state=TaskState.PAUSED) == []

    async def test_another_namespace_is_not_listed(self, world: World, engine: Engine) -> None:
        await world.add(engine, 2)
        assert (await listed(engine, namespace=OTHER_NAMESPACE)).items == ()
        with pytest.raises(NotFound):
            await listed(engine, namespace="nobody/default")

    async def test_a_page_has_twenty_by_default_and_a_hundred_at_most(
        self, world: World, engine: Engine
    ) -> None:
        await world.add(engine, 101)
        assert len((await listed(engine)).items) == 20
        assert len((await listed(engine, page=page(5_000))).items) == 100

    async def test_a_cursor_is_good_for_its_own_list_only(
        self, world: World, engine: Engine
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
            ({"type": "\0"}, "type"),
            ({"namespace": "a/b/c"}, "namespace"),
            ({"page": page(-1)}, "page_size"),
            ({"page": page(2**63)}, "page_size"),
        ],
    )
    async def test_a_bad_filter_is_named(
        self, engine: Engine, options: dict[str, Any], field: str
    ) -> None:
        with pytest.raises(InvalidArgument) as caught:
            await listed(engine, **options)
        assert caught.value.fields == {"field": field}


class TestAttempts:
    async def test_a_task_that_was_never_handed_out_has_none(
        self, world: World, engine: Engine
    ) -> None:
        (task_id,) = await world.add(engine)
        await engine.submit(CancelTask(namespace=NAMESPACE, task_id=task_id))
        assert await query.list_attempts(engine.store, namespace=NAMESPACE, task_id=task_id) == ()

    async def test_an_ended_attempt_of_a_cancelled_task_is_listed_once(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.held(engine, worker)
        await world.finish(engine, worker, task, FinishKind.RELEASED)
        await engine.submit(CancelTask(namespace=NAMESPACE, task_id=task.id))
        found = await query.list_attempts(engine.store, namespace=NAMESPACE, task_id=task.id)
        assert [(each.number, each.outcome) for each in found] == [(1, Outcome.RELEASED)]


class TestWorkers:
    async def test_a_worker_has_its_lease_and_health_while_it_is_active(
        self, world: World, engine: Engine
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
        await engine.submit(EvictWorker(namespace=NAMESPACE, worker_id=worker))
        view = await query.get_worker(engine.store, **key)
        assert (view.worker.status, view.lease, view.health) == (WorkerStatus.OFFLINE, None, None)

    async def test_workers_are_listed_newest_first_with_filters_and_pages(
        self, world: World, engine: Engine
    ) -> None:
        workers = [await world.worker(engine) for _ in range(4)]
        slow = await world.worker(engine, queue="slow")
        await engine.submit(DrainWorker(namespace=NAMESPACE, worker_id=workers[1]))
        read = query.list_workers
        first = await read(engine.store, namespace=NAMESPACE, page=page(3))
        rest = await read(engine.store, namespace=NAMESPACE, page=page(3, first.next_page_token))
        ids = [view.worker.id for view in (*first.items, *rest.items)]
        assert ids == [slow, *workers[::-1]]
        assert rest.next_page_token == ""
        draining = await read(
            engine.store,
            namespace=NAMESPACE,
            page=page(),
            where=WorkerFilter(status=WorkerStatus.DRAINING),
        )
        assert [view.worker.id for view in draining.items] == [workers[1]]
        queue = await read(
            engine.store, namespace=NAMESPACE, page=page(), where=WorkerFilter(queue="slow")
        )
        assert [view.worker.id for view in queue.items] == [slow]

    async def test_labels_and_version_pick_the_workers_that_have_all_of_them(
        self, world: World, engine: Engine
    ) -> None:
        zones = [{"zone": "a"}, {"zone": "b"}, {"zone": "a", "gpu.kind": 'h"100'}, {}]
        ids = [await world.worker(engine, labels=each) for each in zones]
        new = await world.worker(engine, software_version="2.0 β", labels={"zone": "a"})

        async def found(**chosen: Any) -> list[str]:
            return await worker_ids(engine, **chosen)

        assert await found(labels={"zone": "a"}) == [new, ids[2], ids[0]]
        assert await found(labels={"gpu.kind": 'h"100', "zone": "a"}) == [ids[2]]
        assert await found(labels={"gpu.kind": 'h"100', "zone": "b"}) == []
        assert await found(labels={"zone": "A"}) == []
        assert await found(version="2.0 β") == [new]
        assert await found(version="2.0 β", labels={"zone": "b"}) == []
        assert await found(labels={}) == [new, *ids[::-1]]

    async def test_health_picks_the_same_workers_that_are_shown_with_it(
        self, world: World, engine: Engine
    ) -> None:
        beats: list[dict[str, Any]] = [
            {},
            {"loop_lag_ms": 1_000},
            {"loop_lag_ms": 1_001},
            {"loop_lag_ms": 1_001, "stuck_count": 1},
            {"stuck_count": 1},
            {"stuck_count": 1},
        ]
        lost = await world.worker(engine, mode=WorkerMode.SESSION)
        _, answer = await world.session(engine, lost)
        engine.lose_session(NAMESPACE, lost, answer.worker.session_no)
        late = [await world.worker(engine, lease_ms=each) for each in (1, 2, 200, 201, 3_000)]
        await world.advance(134)
        ids = [await world.worker(engine) for _ in beats]
        for worker, beat in zip(ids, beats, strict=True):
            await world.beat(engine, worker, 1, **beat)
        gone = await world.worker(engine)
        await engine.submit(EvictWorker(namespace=NAMESPACE, worker_id=gone))
        deaf = {late[0], ids[0], ids[2], ids[4]}
        shown = (await listed_workers(engine, page=page(100), deaf=deaf)).items
        healths = {view.worker.id: view.health for view in shown}
        assert healths[lost] is Health.SUSPECT
        assert [healths[each] for each in late] == [Health.LATE] * 4 + [Health.HEALTHY]
        assert healths[gone] is None
        assert set(healths.values()) == {*Health, None}
        for health in Health:
            wanted = [each for each in healths if healths[each] is health]
            assert await worker_ids(engine, deaf=deaf, health=health) == wanted

    async def test_pages_of_filtered_workers_are_full_and_complete(
        self, world: World, engine: Engine
    ) -> None:
        ids = [
            await world.worker(engine, labels={"odd": "yes"} if number % 2 else {})
            for number in range(9)
        ]
        where = WorkerFilter(labels={"odd": "yes"}, health=Health.HEALTHY)
        first = await listed_workers(engine, page=page(3), where=where)
        token = first.next_page_token
        rest = await listed_workers(engine, page=page(3, token), where=where)
        found = [view.worker.id for view in (*first.items, *rest.items)]
        assert (len(first.items), found) == (3, ids[7::-2])
        others = (
            {"labels": {"odd": "yes"}},
            {"labels": {"odd": "no"}, "health": Health.HEALTHY},
            {"labels": {"odd": "yes"}, "health": Health.LATE},
            {"labels": {"odd": "yes"}, "health": Health.HEALTHY, "version": "1"},
        )
        for other in others:
            with pytest.raises(InvalidArgument) as caught:
                await listed_workers(engine, page=page(3, token), where=WorkerFilter(**other))
            assert caught.value.fields == {"field": "page_token"}

    @pytest.mark.parametrize(
        ("where", "field"),
        [
            (WorkerFilter(queue="a b"), "queue"),
            (WorkerFilter(version="\0"), "version"),
            (WorkerFilter(labels={"a b": "c"}), "labels"),
            (WorkerFilter(labels={"a": "\ud800"}), "labels.a"),
            (WorkerFilter(labels={f"k{n}": "v" for n in range(65)}), "labels"),
        ],
    )
    async def test_a_bad_filter_of_workers_is_named(
        self, engine: Engine, where: WorkerFilter, field: str
    ) -> None:
        with pytest.raises(InvalidArgument) as caught:
            await listed_workers(engine, where=where)
        assert caught.value.fields == {"field": field}

    async def test_one_worker_has_the_number_of_attempts_it_holds(
        self, world: World, engine: Engine
    ) -> None:
        worker, other = await world.worker(engine), await world.worker(engine)
        await world.held(engine, other)
        await world.running(engine, worker)
        task = await world.held(engine, worker)
        assert (await world.view(worker)).held.count == 2
        await world.finish(engine, worker, task)
        assert (await world.view(worker)).held.count == 1

    async def test_a_foreign_or_unknown_worker_is_not_found(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        for namespace, worker_id in ((OTHER_NAMESPACE, worker), (NAMESPACE, world.clock.new_id())):
            with pytest.raises(NotFound):
                await query.get_worker(engine.store, namespace=namespace, worker_id=worker_id)


class TestBounds:
    async def test_a_page_that_found_little_says_where_to_go_on(
        self, world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rare = await world.add(engine, 2, type="sms")
        await world.add(engine, 9)
        monkeypatch.setattr(query, "LISTED_SEEN_MAX", 4)
        monkeypatch.setattr(query, "COUNTED_MAX", 4)
        request = query.PageRequest(cursor_key=CURSOR_KEY, wants_total=True)
        first = await listed(engine, type="sms", page=request)
        assert (first.items, first.total_count, first.is_total_exact) == ((), 0, False)
        assert first.next_page_token
        assert await all_pages(engine, 5, type="sms") == sorted(rare, reverse=True)
        assert (await listed(engine, page=request)).total_count == 4

    async def test_workers_behind_many_others_are_found_page_by_page(
        self, world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = await world.worker(engine, queue="rare")
        for _ in range(5):
            await world.worker(engine)
        monkeypatch.setattr(query, "LISTED_SEEN_MAX", 2)
        where = WorkerFilter(queue="rare")
        token, found, pages = "", [], 0
        while token or not pages:
            some = await listed_workers(engine, page=page(0, token), where=where)
            found += [view.worker.id for view in some.items]
            token = some.next_page_token
            pages += 1
        assert found == [first]
        assert pages > 1


class TestQueues:
    async def test_queues_have_brakes_and_counts_by_type_and_state(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        await engine.submit(SetQueue(namespace=NAMESPACE, name="empty", is_paused=True))
        await world.add(engine, 3)
        await world.add(engine, 2, type="sms")
        await world.claim(engine, worker, max_tasks=1)
        queues = (await listed_queues(engine)).items
        assert [view.queue.name for view in queues] == ["default", "empty"]
        assert queues[0].queue == Queue(NAMESPACE, "default")
        assert queues[0].counts == {
            "mail": {TaskState.DISPATCHED: 1, TaskState.PENDING: 2},
            "sms": {TaskState.PENDING: 2},
        }
        assert queues[0].count(TaskState.PENDING) == 4
        assert (queues[1].queue.is_paused, queues[1].counts) == (True, {})
        assert (await listed_queues(engine, namespace=OTHER_NAMESPACE)).items == ()

    async def test_queues_come_page_by_page_whatever_makes_them_known(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine, queue="e")
        for name in "gec":
            await world.add(engine, queue=name)
        await world.claim(engine, worker, queue="e", max_tasks=1)
        await world.add(engine, queue="b", run_at_ms=world.clock.now_ms() + 60_000)
        await engine.submit(SetQueue(namespace=NAMESPACE, name="d", is_paused=True))
        await engine.submit(SetQueue(namespace=NAMESPACE, name="c", concurrency_max=1))
        names: list[str] = []
        token = ""
        while True:
            found = await listed_queues(engine, page=page(2, token))
            assert len(found.items) <= 2
            names += [view.queue.name for view in found.items]
            if not found.next_page_token:
                break
            token = found.next_page_token
        assert names == ["b", "c", "d", "e", "g"]
        with pytest.raises(InvalidArgument):
            await listed_queues(engine, namespace=OTHER_NAMESPACE, page=page(2, token))

    async def test_counting_stops_at_a_limit_and_says_so(
        self, world: World, engine: Engine
    ) -> None:
        await world.add(engine, 3, queue="few")
        await world.add(engine, 9, queue="many")
        few, many = (await listed_queues(engine, counted_max=4)).items
        assert (few.count(TaskState.PENDING), few.is_exact) == (3, True)
        assert (many.count(TaskState.PENDING), many.is_exact) == (4, False)

    async def test_a_page_of_queues_ends_when_it_has_counted_enough(
        self, world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in "abcde":
            await world.add(engine, 2, queue=name)
        monkeypatch.setattr(query, "QUEUES_COUNTED_AT_ONCE", 1)
        monkeypatch.setattr(query, "QUEUE_ROWS_MAX", 3)
        found = await listed_queues(engine)
        assert [view.queue.name for view in found.items] == ["a", "b"]
        found = await listed_queues(engine, page=page(0, found.next_page_token))
        assert [view.queue.name for view in found.items] == ["c", "d"]
        found = await listed_queues(engine, page=page(0, found.next_page_token))
        assert [view.queue.name for view in found.items] == ["e"]
        assert not found.next_page_token

    async def test_one_queue_is_there_even_if_nobody_has_used_it(
        self, world: World, engine: Engine
    ) -> None:
        await engine.submit(SetQueue(namespace=NAMESPACE, name="slow", concurrency_max=2))
        await world.add(engine, 2, queue="slow")
        await world.add(engine, 3)
        await engine.submit(SetQueue(namespace=OTHER_NAMESPACE, name="slow", is_paused=True))

        async def queue(name: str, namespace: str = NAMESPACE) -> query.QueueView:
            return await query.get_queue(engine.store, namespace=namespace, name=name)

        slow = await queue("slow")
        assert (slow.queue.concurrency_max, slow.queue.is_paused) == (2, False)
        assert slow.counts == {"mail": {TaskState.PENDING: 2}}
        assert (await queue("default")).count(TaskState.PENDING) == 3
        assert await queue("unused") == query.QueueView(Queue(NAMESPACE, "unused"), {})
        with pytest.raises(NotFound):
            await queue("slow", "nobody/default")
        with pytest.raises(InvalidArgument):
            await queue("a b")


class TestNamespaces:
    async def test_namespaces_come_by_name_in_pages(self, engine: Engine) -> None:
        await engine.submit(CreateNamespace(name="beta/default"))
        await engine.submit(CreateNamespace(name="Beta/default"))
        first = await access_read.list_namespaces(engine.store, page=page(3))
        names = [each.name for each in first.items]
        assert names == ["Beta/default", NAMESPACE, "beta/default"]
        rest = await access_read.list_namespaces(engine.store, page=page(3, first.next_page_token))
        assert OTHER_NAMESPACE in [each.name for each in rest.items]
        assert rest.next_page_token == ""
        with pytest.raises(InvalidArgument):
            await listed(engine, page=page(2, first.next_page_token))


class TestTotals:
    async def test_a_total_counts_the_whole_list_and_only_when_asked_for(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        await world.worker(engine, queue="slow")
        await world.add(engine, 5)
        await world.add(engine, 2, type="sms")
        (task,) = await world.claim(engine, worker, max_tasks=1)
        await world.finish(engine, worker, task)
        assert (await listed(engine)).total_count is None
        counted = replace(page(2), wants_total=True)
        found = await listed(engine, page=counted)
        assert (len(found.items), found.total_count, found.is_total_exact) == (2, 7, True)
        second = replace(counted, token=found.next_page_token)
        assert (await listed(engine, page=second)).total_count == 7
        assert (await listed(engine, page=counted, type="mail")).total_count == 5
        assert (await listed(engine, page=counted, state=TaskState.SUCCEEDED)).total_count == 1
        assert (await listed_workers(engine)).total_count is None
        assert (await listed_workers(engine, page=counted)).total_count == 2
        slow = WorkerFilter(queue="slow", health=Health.HEALTHY)
        assert (await listed_workers(engine, page=counted, where=slow)).total_count == 1

    async def test_counting_stops_at_its_limit_and_says_so(
        self, world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(query, "COUNTED_MAX", 3)
        counted = replace(page(2), wants_total=True)
        for amount, total, is_exact in ((3, 3, True), (1, 3, False), (4, 3, False)):
            await world.add(engine, amount)
            found = await listed(engine, page=counted)
            assert (found.total_count, found.is_total_exact) == (total, is_exact)


@pytest.mark.parametrize(
    ("error", "reason"), [(Lost("cut"), "store_unreachable"), (Conflict("busy"), "conflict")]
)
async def test_a_read_that_cannot_be_done_is_unavailable(
    world: World, engine: Engine, error: Exception, reason: str
) -> None:
    (task_id,) = await world.add(engine)
    world.faults.raise_at("read_tasks", error)
    with pytest.raises(Unavailable) as caught:
        await world.task(task_id)
    assert caught.value.fields["reason"] == reason
    assert (await world.task(task_id)).id == task_id
