"""Rates, crowds and early refusal: what is too much slows only whoever asks for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import ExitStack
from typing import Any

import click
import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from tenure.api.guard.admission import Admission, Room
from tenure.api.guard.rate_limit import Allowance, Crowd, RateLimit
from tenure.api.http.edge import early_refusal
from tenure.api.http.edge.app import make_app
from tenure.api.readiness import Readiness
from tenure.api.setting import ServerSettings
from tenure.cli.command.server import server
from tenure.core import limits
from tenure.engine.engine import Engine
from tenure.errors import RateLimited
from tenure.v1 import admin_service_pb2 as admin_pb
from tenure.v1 import task_pb2, worker_pb2
from tenure.v1 import task_service_pb2 as task_pb
from tenure.v1 import workflow_service_pb2 as workflow_pb
from tests.api.http.site import TASK, Site, site_of
from tests.api.rpc.wire import open_wire, refused
from tests.engine.conftest import dialect, world
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE, Clock, World
from tests.polling import eventually

__all__ = ["dialect", "world"]


def taken(limit: RateLimit, key: str, amount: int = 1) -> int:
    """Return 0 if tokens could be taken, else after how many milliseconds there are enough."""
    try:
        limit.take(key, amount)
    except RateLimited as refusal:
        return int(refusal.fields["retry_after_ms"])
    return 0


class TestRate:
    def test_a_second_s_worth_is_let_through_at_once_and_then_as_many_per_second(self) -> None:
        clock = Clock()
        limit = RateLimit(clock, what="calls", per_s=10)
        assert [taken(limit, "a") for _ in range(10)] == [0] * 10
        assert taken(limit, "a") == 100
        clock.advance(99)
        assert taken(limit, "a") == 1
        clock.advance(1)
        assert taken(limit, "a") == 0
        assert taken(limit, "a") == 100

    def test_each_key_has_its_own_bucket(self) -> None:
        limit = RateLimit(Clock(), what="calls", per_s=1)
        assert taken(limit, "a") == 0
        assert taken(limit, "a") > 0
        assert taken(limit, "b") == 0

    def test_what_is_asked_for_after_the_told_time_is_let_through(self) -> None:
        clock = Clock()
        limit = RateLimit(clock, what="calls", per_s=7)
        assert taken(limit, "a", 7) == 0
        for amount in (1, 3, 7, 2):
            wait_ms = taken(limit, "a", amount)
            assert wait_ms > 0
            clock.advance(wait_ms)
            assert taken(limit, "a", amount) == 0

    def test_a_batch_larger_than_the_bucket_passes_when_it_is_full_and_leaves_a_debt(self) -> None:
        clock = Clock()
        limit = RateLimit(clock, what="tasks", per_s=100)
        assert taken(limit, "a", 1_000) == 0
        assert taken(limit, "a", 1_000) == 10_000
        assert taken(limit, "a", 1) == 9_010
        clock.advance(9_010)
        assert taken(limit, "a", 1) == 0

    def test_a_refusal_takes_nothing(self) -> None:
        clock = Clock()
        limit = RateLimit(clock, what="calls", per_s=10)
        assert taken(limit, "a", 10) == 0
        clock.advance(500)
        assert [taken(limit, "a", 6) for _ in range(5)] == [100] * 5
        assert taken(limit, "a", 5) == 0

    def test_no_rate_is_no_limit(self) -> None:
        limit = RateLimit(Clock(), what="calls", per_s=0)
        limit.take("a", 1_000_000)
        assert len(limit) == 0

    def test_the_buckets_of_many_keys_are_bounded(self) -> None:
        limit = RateLimit(Clock(), what="calls", per_s=1)
        for number in range(limits.BUCKETS_MAX + 10):
            limit.take(str(number))
        assert len(limit) == limits.BUCKETS_MAX
        assert taken(limit, str(limits.BUCKETS_MAX + 9)) > 0


class TestCrowd:
    def test_a_bounded_number_stays_for_each_key_and_nobody_is_remembered(self) -> None:
        crowd = Crowd("polls", most=2)
        with ExitStack() as stack:
            stack.enter_context(crowd.place("a"))
            stack.enter_context(crowd.place("a"))
            with pytest.raises(RateLimited) as refusal, crowd.place("a"):
                raise AssertionError
            assert refusal.value.fields["retry_after_ms"] == limits.CROWD_RETRY_MS
            stack.enter_context(crowd.place("b"))
            assert len(crowd) == 2
        assert len(crowd) == 0
        with crowd.place("a"):
            assert len(crowd) == 1


class TestAdmission:
    def test_a_calm_server_lets_everything_in(self) -> None:
        clock = Clock()
        admission = Admission(clock)
        with ExitStack() as stack:
            for _ in range(limits.NEW_WORK_OPEN_MIN - 1):
                assert not admission.refuses()
                stack.enter_context(admission.work())
            clock.advance(60_000)
            # A few that take long are no crowd.
            assert not any(admission.refuses() for _ in range(10))
        assert admission.open_count == 0

    def test_when_the_oldest_waits_too_long_most_are_refused_and_later_all(self) -> None:
        clock = Clock()
        admission = Admission(clock)
        of = limits.OVERLOAD_ADMITTED_OF
        with ExitStack() as stack:
            for _ in range(limits.NEW_WORK_OPEN_MIN):
                stack.enter_context(admission.work())
            clock.advance(limits.OVERLOAD_WAIT_MS)
            assert not admission.refuses()
            clock.advance(1)
            assert sum(admission.refuses() for _ in range(4 * of)) == 4 * (of - 1)
            clock.advance(limits.OVERLOAD_WAIT_MS)
            assert sum(admission.refuses() for _ in range(4 * of**2)) == 4 * (of**2 - 1)
            clock.advance(2 * limits.OVERLOAD_WAIT_MS)
            assert all(admission.refuses() for _ in range(4 * of**2))

    def test_what_was_let_in_takes_its_room_before_it_begins(self) -> None:
        admission = Admission(Clock())
        answers = [admission.refuses() for _ in range(2 * limits.NEW_WORK_OPEN_START)]
        assert answers == [False] * limits.NEW_WORK_OPEN_START + [True] * limits.NEW_WORK_OPEN_START
        assert admission.is_expecting
        assert admission.refused_count == limits.NEW_WORK_OPEN_START

    async def test_what_was_let_in_and_never_begins_gives_its_room_back(self) -> None:
        admission = Admission(Clock())
        while not admission.refuses():
            """Fill the room."""
        serving = asyncio.create_task(admission.serve())
        await eventually(lambda: not admission.is_expecting)
        assert not admission.refuses()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)

    def test_the_room_grows_while_work_is_quick_and_shrinks_when_it_is_slow(self) -> None:
        room = Room()
        for _ in range(200):
            room.opened(limits.NEW_WORK_OPEN_MAX)
            room.closed(limits.OVERLOAD_WAIT_MS // 2 - 1)
            room.adapt()
        assert room.size == limits.NEW_WORK_OPEN_MAX
        room.closed(limits.OVERLOAD_WAIT_MS)
        room.adapt()
        assert room.size == limits.NEW_WORK_OPEN_MAX
        for _ in range(200):
            room.closed(limits.OVERLOAD_WAIT_MS + 1)
            room.adapt()
        assert room.size == limits.NEW_WORK_OPEN_MIN
        # Nobody needs more than half of it.
        for _ in range(200):
            room.opened(limits.NEW_WORK_OPEN_MIN // 2)
            room.closed(1)
            room.adapt()
        assert room.size == limits.NEW_WORK_OPEN_MIN
        for _ in range(200):
            room.adapt()
        assert room.size == limits.NEW_WORK_OPEN_START

    async def test_a_loop_that_is_late_refuses_only_in_a_crowd(self) -> None:
        clock = Clock()
        admission = Admission(clock)
        serving = asyncio.create_task(admission.serve())
        await asyncio.sleep(0)
        clock.advance(limits.OVERLOAD_TICK_MS + 4 * limits.OVERLOAD_WAIT_MS + 1)
        answers = [admission.refuses() for _ in range(2 * limits.NEW_WORK_OPEN_MIN)]
        assert not any(answers[: limits.NEW_WORK_OPEN_MIN - 1])
        assert all(answers[limits.NEW_WORK_OPEN_MIN :])
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


HEAD = b"POST /v1/tasks HTTP/1.1\r\nhost: localhost\r\n"


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (HEAD + b"content-length: 2\r\n\r\n{}", "enqueueTask"),
        (HEAD + b"Content-Length:0\r\n\r\n", "enqueueTask"),
        (
            HEAD.replace(b"tasks", b"tasks?namespace=a") + b"content-length: 0\r\n\r\n",
            "enqueueTask",
        ),
        (HEAD.replace(b"tasks", b"tasks:batch") + b"content-length: 2\r\n\r\n{}", "enqueueTasks"),
        (HEAD.replace(b"tasks", b"runs") + b"content-length: 2\r\n\r\n{}", "startRun"),
        (HEAD.replace(b"tasks", b"runs/x/cancel") + b"content-length: 0\r\n\r\n", None),
        (HEAD + b"content-length: 3\r\n\r\n{}", None),
        (HEAD + b"content-length: 1\r\n\r\n{}", None),
        (HEAD + b"content-length: 2\r\ncontent-length: 2\r\n\r\n{}", None),
        (HEAD + b"transfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n{}", None),
        (HEAD + b"connection: close\r\ncontent-length: 2\r\n\r\n{}", None),
        (HEAD + b"expect: 100-continue\r\ncontent-length: 2\r\n\r\n{}", None),
        (HEAD + b"\r\n", None),
        (HEAD, None),
        (b"", None),
        (b"POST /v1/tasksX HTTP/1.1\r\ncontent-length: 0\r\n\r\n", None),
        (b"POST /v1/tasks/x/complete HTTP/1.1\r\ncontent-length: 0\r\n\r\n", None),
        (b"GET /v1/tasks HTTP/1.1\r\ncontent-length: 0\r\n\r\n", None),
        (HEAD + b"x: content-length: 2\r\n\r\n{}", None),
    ],
)
def test_only_a_whole_enqueue_is_recognised_before_it_is_read(
    data: bytes, name: str | None
) -> None:
    assert early_refusal.new_work(data) == name


async def late(engine: Engine, world: World, allowance: Allowance, stack: ExitStack) -> None:
    """Let a server have old work open, so that it is late."""
    for _ in range(limits.NEW_WORK_OPEN_MIN):
        stack.enter_context(allowance.admission.work())
    world.clock.advance(4 * limits.OVERLOAD_WAIT_MS + 1)
    assert engine.clock is world.clock


class TestOverload:
    @pytest.fixture
    async def site(self, world: World) -> AsyncIterator[tuple[Site, Allowance]]:
        engine = await world.start()
        allowance = Allowance(engine.clock)
        app = make_app(engine, ServerSettings(), Readiness(engine), allowance=allowance)
        async with site_of(world, engine, app) as made:
            yield made, allowance

    async def test_http_refuses_new_work_and_nothing_else(
        self, site: tuple[Site, Allowance], world: World
    ) -> None:
        made, allowance = site
        task_id = await made.enqueue()
        with ExitStack() as stack:
            await late(made.engine, world, allowance, stack)
            before = await world.dump()
            for path, body in (
                ("/v1/tasks", TASK),
                ("/v1/tasks:batch", {"tasks": [TASK]}),
                (f"/v1/tasks/{task_id}/retry", {}),
            ):
                answer = await made.client.post(path, json=body)
                assert answer.status_code == 429, path
                assert answer.json()["error"] == "rate_limited"
                assert answer.json()["retryAfterMs"] == limits.OVERLOAD_RETRY_MS
                assert answer.headers["retry-after"] == "1"
            # Neither in two pieces nor after a head that wants the connection closed.
            answer = await made.client.post("/v1/tasks", json=TASK, headers={"connection": "close"})
            assert answer.status_code == 429
            assert await world.dump() == before
            assert (await made.client.get(f"/v1/tasks/{task_id}")).status_code == 200
            assert (await made.client.post(f"/v1/tasks/{task_id}/cancel")).status_code == 200
        assert (await made.client.post("/v1/tasks", json=TASK)).status_code == 201

    async def test_grpc_refuses_new_work_and_never_a_heartbeat_or_a_report(
        self, world: World
    ) -> None:
        engine = await world.start()
        allowance = Allowance(engine.clock)
        async with open_wire(engine, allowance=allowance) as wire:
            made = await wire.register()
            await wire.enqueue(wire.new(), wire.new())
            tasks = await wire.poll(made.worker_id)
            with ExitStack() as stack:
                await late(engine, world, allowance, stack)
                before = await world.dump()
                retry = task_pb.RetryTaskRequest(namespace_id=NAMESPACE, task_id=tasks[0].task_id)
                calls: tuple[Awaitable[Any], ...] = (
                    wire.enqueue(),
                    wire.enqueue(independent=True),
                    wire.register(),
                    wire.tasks.RetryTask(retry),
                )
                for call in calls:
                    status, refusal = await refused(call)
                    assert (status, refusal.code) == ("RESOURCE_EXHAUSTED", "rate_limited")
                    assert refusal.retry_after_ms == limits.OVERLOAD_RETRY_MS
                assert await world.dump() == before
                assert (await wire.beat(made.worker_id, made.token)).accepted
                results = await wire.finish(
                    made.worker_id, *(finished(each.task_id, each.attempt) for each in tasks)
                )
                assert not any(each.HasField("error") for each in results)
            await wire.enqueue()


def finished(task_id: str, attempt: int) -> Any:
    return task_pb2.TaskFinish(
        task_id=task_id, attempt=attempt, kind=task_pb2.FINISH_KIND_SUCCEEDED
    )


class TestOverGrpc:
    async def test_the_rate_of_enqueues_counts_tasks_and_is_one_namespace_s_own(
        self, world: World
    ) -> None:
        engine = await world.start()
        async with open_wire(engine, enqueues_per_s=5) as wire:
            await wire.enqueue(wire.new(), wire.new(), wire.new())
            before = await world.dump()
            status, refusal = await refused(wire.enqueue(wire.new(), wire.new(), wire.new()))
            assert (status, refusal.code) == ("RESOURCE_EXHAUSTED", "rate_limited")
            assert refusal.retry_after_ms == 200
            assert await world.dump() == before
            other = task_pb.EnqueueTasksRequest(namespace_id=OTHER_NAMESPACE, tasks=[wire.new()])
            await wire.tasks.EnqueueTasks(other)
            await world.advance(200)
            await wire.enqueue(wire.new(), wire.new(), wire.new())

    async def test_independent_tasks_are_taken_as_far_as_the_rate_goes(self, world: World) -> None:
        engine = await world.start()
        async with open_wire(engine, enqueues_per_s=5) as wire:
            await wire.enqueue(wire.new(), wire.new())
            request = task_pb.EnqueueTasksRequest(
                namespace_id=NAMESPACE, tasks=[wire.new() for _ in range(5)], independent=True
            )
            answer = await wire.tasks.EnqueueTasks(request)
            assert [each.error.code for each in answer.results] == ["", "", ""] + [
                "rate_limited"
            ] * 2
            assert answer.results[-1].error.retry_after_ms == 200

    async def test_a_batch_larger_than_the_rate_is_possible(self, world: World) -> None:
        engine = await world.start()
        async with open_wire(engine, enqueues_per_s=5) as wire:
            assert len(await wire.enqueue(*(wire.new() for _ in range(20)))) == 20
            _, refusal = await refused(wire.enqueue())
            assert refusal.retry_after_ms == 3_200

    async def test_lists_have_a_rate_and_single_reads_have_none(self, world: World) -> None:
        engine = await world.start()
        async with open_wire(engine, lists_per_s=4) as wire:
            (task_id,) = await wire.enqueue()
            lists: tuple[Any, ...] = (
                (wire.tasks.ListTasks, task_pb.ListTasksRequest(namespace_id=NAMESPACE)),
                (
                    wire.workflows.ListWorkers,
                    workflow_pb.ListWorkersRequest(namespace_id=NAMESPACE),
                ),
                (wire.admin.ListQueues, admin_pb.ListQueuesRequest(namespace_id=NAMESPACE)),
            )
            for call, request in lists:
                await call(request)
            await wire.tasks.ListTasks(lists[0][1])
            for call, request in lists:
                status, refusal = await refused(call(request))
                assert (status, refusal.code) == ("RESOURCE_EXHAUSTED", "rate_limited")
                assert refusal.retry_after_ms == 250
            for _ in range(10):
                await wire.get(task_id)
            await wire.admin.ListNamespaces(admin_pb.ListNamespacesRequest())

    async def test_a_flood_of_beats_is_refused_and_costs_nobody_a_lease(self, world: World) -> None:
        engine = await world.start()
        async with open_wire(engine, beats_per_s=2) as wire:
            flooding, calm = await wire.register(), await wire.register()
            token = flooding.token
            for _ in range(2 * limits.BEATS_BURST_S):
                token = (await wire.beat(flooding.worker_id, token)).token
            for _ in range(20):
                status, refusal = await refused(wire.beat(flooding.worker_id, token))
                assert (status, refusal.code) == ("RESOURCE_EXHAUSTED", "rate_limited")
            assert (await wire.beat(calm.worker_id, calm.token)).accepted
            await world.advance(500)
            assert (await wire.beat(flooding.worker_id, token)).accepted

    async def test_a_flood_of_beats_in_a_session_is_refused_and_its_reports_are_taken(
        self, world: World
    ) -> None:
        engine = await world.start()
        async with open_wire(engine, beats_per_s=1) as wire:
            _, stream = await wire.session_worker()
            token = stream.welcome.token
            for _ in range(limits.BEATS_BURST_S):
                await stream.send(beat={"token": token})
                token = (await stream.until(lambda frame: frame.lease.token)) or token
            (task_id,) = await wire.enqueue()
            (task,) = await stream.tasks()
            await stream.send(beat={"token": token}, finished=[finished(task_id, task.attempt)])
            refusal = await stream.until(lambda frame: frame.lease.error.code)
            assert refusal == "rate_limited"
            await wire.until_state(task_id, "SUCCEEDED")
            await world.advance(1_000)
            await stream.send(beat={"token": token})
            assert await stream.until(lambda frame: frame.lease.token)

    async def test_sessions_and_polls_of_a_namespace_are_bounded(self, world: World) -> None:
        engine = await world.start()
        async with open_wire(engine, sessions_max=1, polls_max=1) as wire:
            _, stream = await wire.session_worker()
            made = await wire.register(mode=worker_pb2.WORKER_MODE_SESSION)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await wire.open_session(made.worker_id, session_no=1)
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            await stream.send(goodbye={})
            await stream.end()

            async def is_open() -> bool:
                try:
                    await wire.open_session(made.worker_id, session_no=1)
                except grpc.aio.AioRpcError:
                    return False
                return True

            await eventually(is_open)
            polling = await wire.register()
            waiting = asyncio.ensure_future(
                wire.polling(polling.worker_id, wait=Duration(seconds=30))
            )
            await eventually(lambda: engine.occupancy.poll_count == 1)
            status, refusal = await refused(wire.polling(polling.worker_id))
            assert (status, refusal.code) == ("RESOURCE_EXHAUSTED", "rate_limited")
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

            async def is_free() -> bool:
                try:
                    await wire.poll(polling.worker_id)
                except grpc.aio.AioRpcError:
                    return False
                return True

            await eventually(is_free)


async def test_http_has_the_same_rates_with_retry_after(world: World) -> None:
    engine = await world.start()
    settings = ServerSettings(enqueues_per_s=2, lists_per_s=1)
    app = make_app(engine, settings, Readiness(engine))
    async with site_of(world, engine, app) as site:
        await site.call("POST", "/v1/tasks:batch", json={"tasks": [TASK, TASK]})
        before = await world.dump()
        for path, body in (("/v1/tasks", TASK), ("/v1/tasks:batch", {"tasks": [TASK]})):
            answer = await site.client.post(path, json=body)
            assert (answer.status_code, answer.json()["error"]) == (429, "rate_limited")
            assert answer.json()["retryAfterMs"] == 500
            assert answer.headers["retry-after"] == "1"
        assert await world.dump() == before
        await site.call("GET", "/v1/tasks")
        for path in ("/v1/tasks", "/v1/workers", "/v1/queues"):
            assert (await site.refused("GET", path))[:2] == (429, "rate_limited")
        await world.advance(1_000)
        await site.enqueue()
        await site.call("GET", "/v1/workers")


async def test_both_edges_share_one_allowance(world: World) -> None:
    engine = await world.start()
    settings = ServerSettings(enqueues_per_s=2)
    allowance = Allowance(engine.clock, settings)
    app = make_app(engine, settings, Readiness(engine), allowance=allowance)
    async with site_of(world, engine, app) as site, open_wire(engine, allowance=allowance) as wire:
        await site.enqueue()
        await wire.enqueue()
        assert (await site.refused("POST", "/v1/tasks", json=TASK))[0] == 429
        assert (await refused(wire.enqueue()))[1].code == "rate_limited"


async def test_waiting_requests_of_a_namespace_are_bounded(world: World) -> None:
    engine = await world.start()
    allowance = Allowance(engine.clock, ServerSettings(waits_max=1))
    app = make_app(engine, ServerSettings(), Readiness(engine), allowance=allowance)
    async with site_of(world, engine, app) as site:
        task_id = await site.enqueue()
        waiting = asyncio.create_task(site.client.get(f"/v1/tasks/{task_id}?wait=30s"))
        await eventually(lambda: len(allowance.waits) == 1)
        refusal = await site.refused("GET", f"/v1/tasks/{task_id}?wait=30s")
        assert refusal[:2] == (429, "rate_limited")
        await site.call("POST", f"/v1/tasks/{task_id}/cancel")
        assert (await waiting).json()["state"] == "CANCELLED"
        assert (await site.client.get(f"/v1/tasks/{task_id}?wait=30s")).status_code == 200


def test_the_rates_are_options_of_the_server() -> None:
    said = ["--store", "sqlite:///x", "--enqueue-rate", "7", "--list-rate", "0"]
    params = server.make_context("server", said).params
    found = [params[name] for name in ("enqueue_rate", "register_rate", "list_rate")]
    assert found == [7, limits.REGISTRATIONS_PER_S, 0]
    with pytest.raises(click.BadParameter):
        server.make_context("server", ["--store", "sqlite:///x", "--register-rate", "-1"])
