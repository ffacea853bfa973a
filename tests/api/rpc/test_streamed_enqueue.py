"""Enqueues over the stream of results: each is a call of its own, and cheaper."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import grpc
import pytest

from tenure.api.guard.admission import Admission
from tenure.api.guard.rate_limit import Allowance
from tenure.api.rpc.context import Context
from tenure.api.rpc.session import flush_delay
from tenure.api.rpc.session.client_stream import ClientStream
from tenure.api.rpc.session.stream_enqueue import StreamEnqueue
from tenure.api.setting import ServerSettings
from tenure.core.limits import STREAM_ENQUEUES_MAX
from tenure.engine.engine import Engine
from tenure.v1 import task_service_pb2 as pb
from tests.api.rpc.wire import Wire, detail, open_wire, state_name, succeeded
from tests.bounds import ANSWER_S
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE, World

FOR_EVER_MS = 3_600_000


def request(number: int, *tasks: Any, watch: bool = False, **fields: Any) -> pb.StreamedEnqueue:
    new = pb.EnqueueTasksRequest(tasks=tasks, **fields)
    return pb.StreamedEnqueue(number=number, request=new, watch=watch)


async def open_stream(wire: Wire, *enqueues: pb.StreamedEnqueue) -> Any:
    stream = wire.tasks.WatchTasks()
    await stream.write(pb.WatchTasksRequest(namespace_id=NAMESPACE, enqueues=enqueues))
    return stream


async def answers(stream: Any, count: int) -> dict[int, pb.StreamedAnswer]:
    found: dict[int, pb.StreamedAnswer] = {}
    async with asyncio.timeout(ANSWER_S):
        while len(found) < count:
            frame = await stream.read()
            assert frame is not grpc.aio.EOF
            found |= {each.number: each for each in frame.answers}
    return found


async def test_an_enqueue_is_answered_by_its_number_and_its_result_comes_behind(wire: Wire) -> None:
    stream = await open_stream(wire, request(7, wire.new()))
    (result,) = (await answers(stream, 1))[7].response.results
    assert (state_name(result.state), result.is_new) == ("PENDING", True)
    await stream.write(pb.WatchTasksRequest(add=[result.task_id]))
    worker = await wire.register()
    tasks = await wire.poll(worker.worker_id)
    await wire.finish(worker.worker_id, *[succeeded(task, b"done") for task in tasks])
    async with asyncio.timeout(ANSWER_S):
        (ended,) = (await stream.read()).results
    assert (ended.task_id, ended.output) == (result.task_id, b"done")


async def test_what_is_watched_with_its_enqueue_is_told_without_another_word(wire: Wire) -> None:
    worker_id, session = await wire.session_worker()
    bad = wire.new(type="bad type")
    stream = await open_stream(wire, request(1, wire.new(), bad, independent=True, watch=True))
    (task,) = await session.tasks()
    await session.send(finished=[succeeded(task, b"done")])
    await stream.done_writing()
    async with asyncio.timeout(ANSWER_S):
        frames = [frame async for frame in stream]
    assert frames[0].answers[0].response.results[0].task_id == task.task_id
    (ended,) = [each for frame in frames for each in frame.results]
    assert (ended.task_id, ended.output) == (task.task_id, b"done")
    assert worker_id


async def test_the_answer_to_a_task_that_is_waited_for_comes_with_its_result(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush_delay, "LULL_MS", FOR_EVER_MS)
    _, session = await wire.session_worker()
    stream = await open_stream(wire, request(1, wire.new(), watch=True))
    (task,) = await session.tasks()
    await session.send(finished=[succeeded(task, b"done")])
    async with asyncio.timeout(ANSWER_S):
        frame = await stream.read()
    (answer,) = frame.answers
    (ended,) = frame.results
    assert answer.response.results[0].task_id == ended.task_id == task.task_id


async def test_the_answer_does_not_wait_for_a_task_that_takes_its_time(wire: Wire) -> None:
    stream = await open_stream(wire, request(1, wire.new(), watch=True))
    (result,) = (await answers(stream, 1))[1].response.results
    assert state_name(result.state) == "PENDING"


async def test_an_answer_that_somebody_may_need_is_written_at_once(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush_delay, "LULL_MS", FOR_EVER_MS)
    stream = await open_stream(
        wire,
        request(1, wire.new()),
        request(2, wire.new(), wire.new(), independent=True, watch=True),
        request(3, wire.new(type="bad type"), independent=True, watch=True),
        request(4, watch=True),
    )
    found = await answers(stream, 4)
    assert found[4].refusal.code == "invalid_argument"


async def test_more_enqueues_than_may_be_open_are_all_answered(wire: Wire, world: World) -> None:
    numbers = range(1, 3 * STREAM_ENQUEUES_MAX + 1)
    stream = await open_stream(wire, *(request(each, wire.new()) for each in numbers))
    await stream.done_writing()
    found = await answers(stream, len(numbers))
    assert found.keys() == set(numbers)
    async with asyncio.timeout(ANSWER_S):
        assert await stream.read() is grpc.aio.EOF
    assert len(await world.database.rows("SELECT id FROM tasks")) == len(numbers)


async def test_a_refusal_is_for_one_enqueue_and_the_stream_goes_on(
    wire: Wire, world: World
) -> None:
    before = await world.dump()
    bad = (
        request(1, wire.new(type="bad type")),
        request(2),
        request(3, wire.new(), wire.new(type=""), independent=False),
    )
    stream = await open_stream(wire, *bad)
    found = await answers(stream, len(bad))
    assert {each.refusal.code for each in found.values()} == {"invalid_argument"}
    assert await world.dump() == before
    good = request(4, wire.new(), wire.new(type="bad type"), independent=True)
    await stream.write(pb.WatchTasksRequest(enqueues=[good]))
    first, second = (await answers(stream, 1))[4].response.results
    assert (first.is_new, second.error.code) == (True, "invalid_argument")


async def test_an_enqueue_stays_in_the_namespace_of_its_stream(wire: Wire, world: World) -> None:
    before = await world.dump()
    stream = await open_stream(wire, request(1, wire.new(), namespace_id=OTHER_NAMESPACE))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.read()
    assert detail(caught.value).field == "namespace_id"
    assert await world.dump() == before


async def test_an_overloaded_server_refuses_enqueues_and_keeps_the_stream(engine: Engine) -> None:
    allowance = Allowance(engine.clock, ServerSettings(enqueues_per_s=1))
    async with open_wire(engine, allowance=allowance) as wire:
        stream = await open_stream(wire, *(request(each, wire.new()) for each in (1, 2)))
        found = await answers(stream, 2)
        assert [found[each].refusal.code for each in (1, 2)] == ["", "rate_limited"]
        while not allowance.admission.refuses():
            pass
        await stream.write(pb.WatchTasksRequest(enqueues=[request(3, wire.new())]))
        refusal = (await answers(stream, 1))[3].refusal
        assert (refusal.code, refusal.retry_after_ms) == ("rate_limited", 1_000)


async def test_a_stopping_server_answers_what_it_has_taken_before_the_stream_ends(
    wire: Wire,
) -> None:
    stream = await open_stream(wire, *(request(each, wire.new()) for each in (1, 2)))
    found = await answers(stream, 1)
    await wire.server.stop(60)
    found |= await answers(stream, 2 - len(found))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.read()
    assert detail(caught.value).reason == "shutting_down"
    assert {each.refusal.reason for each in found.values()} <= {"", "shutting_down"}
    assert len(found) == 2


class Unread:
    """The end of a stream whose client does not read."""

    async def write(self, frame: object) -> None:
        del frame
        await asyncio.Event().wait()


async def test_of_a_client_that_does_not_read_no_more_is_taken(engine: Engine) -> None:
    taken: list[pb.EnqueueTasksRequest] = []

    async def enqueue(_: str, request: pb.EnqueueTasksRequest) -> pb.EnqueueTasksResponse:
        taken.append(request)
        return pb.EnqueueTasksResponse()

    async def requests() -> AsyncIterator[pb.WatchTasksRequest]:
        for number in range(4 * STREAM_ENQUEUES_MAX):
            yield pb.WatchTasksRequest(namespace_id=NAMESPACE, enqueues=[request(number)])

    desk = StreamEnqueue(enqueue, Admission(engine.clock), lambda *_: None)
    watch = ClientStream(engine.results, desk, cast("Context", Unread()))
    serving = asyncio.ensure_future(watch.serve(requests()))
    for _ in range(1_000):
        await asyncio.sleep(0)
    # Those on their way to the client, and as many behind them.
    assert STREAM_ENQUEUES_MAX <= len(taken) <= 2 * STREAM_ENQUEUES_MAX
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
