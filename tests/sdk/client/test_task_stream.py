"""Enqueues over the stream of results, and back to calls when it breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from tenure import Client
from tenure.errors import NotFound
from tenure.sdk.client.task_bytes import request_bytes
from tenure.sdk.client.task_stream import StreamBroken, TaskStreams
from tenure.sdk.transport.channel import Channel
from tenure.v1 import task_service_pb2 as pb
from tests.bounds import WORK_S
from tests.polling import eventually
from tests.sdk.client.stage import RawWorker, ServerStage, double, echo
from tests.wire.proxy import Proxy


class FakeServer(grpc.GenericRpcHandler):
    """Counts what comes as a call and what comes over a stream; may end its streams unanswered."""

    def __init__(self) -> None:
        self.target = ""
        self.calls: list[pb.EnqueueTasksRequest] = []
        self.streamed: list[pb.EnqueueTasksRequest] = []
        self.is_deaf = False
        self.is_silent = False

    def service(self, call: grpc.HandlerCallDetails) -> Any:
        if call.method.endswith("/EnqueueTasks"):
            return grpc.unary_unary_rpc_method_handler(
                self._call,
                pb.EnqueueTasksRequest.FromString,
                pb.EnqueueTasksResponse.SerializeToString,
            )
        return grpc.stream_stream_rpc_method_handler(
            self._stream, pb.WatchTasksRequest.FromString, pb.WatchTasksResponse.SerializeToString
        )

    async def _call(self, request: pb.EnqueueTasksRequest, _: object) -> pb.EnqueueTasksResponse:
        self.calls.append(request)
        return _answer(request)

    async def _stream(
        self, requests: AsyncIterator[pb.WatchTasksRequest], _: object
    ) -> AsyncIterator[pb.WatchTasksResponse]:
        async for request in requests:
            for each in request.enqueues:
                self.streamed.append(each.request)
                if self.is_deaf:
                    return
                if self.is_silent:
                    continue
                answer = pb.StreamedAnswer(number=each.number, response=_answer(each.request))
                yield pb.WatchTasksResponse(answers=[answer])


def _answer(request: pb.EnqueueTasksRequest) -> pb.EnqueueTasksResponse:
    results = [pb.EnqueueResult(task_id=each.task_id, is_new=True) for each in request.tasks]
    return pb.EnqueueTasksResponse(results=results)


@pytest.fixture
async def fake() -> AsyncIterator[tuple[FakeServer, Client]]:
    server, handler = grpc.aio.server(), FakeServer()
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    handler.target = f"127.0.0.1:{port}"
    async with Client(handler.target) as client:
        yield handler, client
    await server.stop(None)


async def test_whoever_enqueues_again_does_so_over_a_stream(
    fake: tuple[FakeServer, Client],
) -> None:
    server, client = fake
    for number in range(5):
        await client.enqueue(double, number)
    assert (len(server.calls), len(server.streamed)) == (1, 4)
    assert not any(each.is_resend for each in server.streamed)


async def test_what_a_broken_stream_did_not_answer_is_called_and_marked(
    fake: tuple[FakeServer, Client],
) -> None:
    server, client = fake
    await client.enqueue(double, 1)
    server.is_deaf = True
    handle = await client.enqueue(double, 2)
    assert [each.is_resend for each in server.calls] == [False, True]
    assert server.calls[1].tasks[0].task_id == handle.task_id
    server.is_deaf = False
    await client.enqueue(double, 3)
    assert len(server.streamed) == 2


async def test_a_server_that_restarts_gets_nothing_twice(stage: ServerStage) -> None:
    async with Client(stage.target) as client:
        for number in range(3):
            await client.enqueue(double, number)
        await stage.stop()
        later = asyncio.ensure_future(client.enqueue(double, 3))
        await stage.start()
        async with RawWorker(stage.target), asyncio.timeout(WORK_S):
            assert await (await later).result() == 6
        assert await stage.task_count() == 4


async def test_a_stream_that_falls_silent_is_left_for_a_call(stage: ServerStage) -> None:
    async with Proxy(stage.target) as proxy, Client(proxy.address) as client:
        for number in range(3):
            await client.enqueue(double, number)
        proxy.loss = 1.0
        later = asyncio.ensure_future(client.enqueue(double, 3))
        await eventually(lambda: proxy.lost_count > 0)
        proxy.loss = 0.0
        async with asyncio.timeout(WORK_S):
            await later
        assert await stage.task_count() == 4


async def test_a_result_is_waited_for_with_its_enqueue(stage: ServerStage) -> None:
    async with Client(stage.target) as client, RawWorker(stage.target):
        assert [await client.run(double, number) for number in range(5)] == [0, 2, 4, 6, 8]
        many = [client.run(double, number) for number in range(300)]
        mixed = [client.enqueue(double, number) for number in range(3)]
        async with asyncio.timeout(WORK_S):
            results, handles = await asyncio.gather(asyncio.gather(*many), asyncio.gather(*mixed))
            assert results == [2 * number for number in range(300)]
            assert [await handle.result() for handle in handles] == [0, 2, 4]


async def test_a_wait_that_is_cancelled_leaves_nobody_waiting(stage: ServerStage) -> None:
    async with Client(stage.target) as client:
        async with RawWorker(stage.target):
            await client.run(double, 1)
        runs = [asyncio.ensure_future(client.run(double, number)) for number in range(20)]
        runs[0].cancel()
        await eventually(lambda: stage.watched_count == 19)
        for run in runs:
            run.cancel()
        await asyncio.gather(*runs, return_exceptions=True)
        await eventually(lambda: stage.watched_count == 0)


async def test_what_is_large_goes_as_a_call(fake: tuple[FakeServer, Client]) -> None:
    server, client = fake
    for size in (1, 1, 100_000):
        await client.enqueue(echo, b"x" * size)
    assert [len(server.calls), len(server.streamed)] == [2, 1]


async def test_a_stream_without_answers_is_not_used_again_until_it_speaks(
    fake: tuple[FakeServer, Client],
) -> None:
    server, _ = fake
    server.is_silent = True
    link = Channel(server.target)
    streams = TaskStreams(link, "default")
    request = request_bytes("default", [], independent=True, is_resend=False)
    try:
        assert await streams.enqueue(request, timeout_s=1.0) is None
        with pytest.raises(StreamBroken):
            await streams.enqueue(request, timeout_s=0.1)
        assert await streams.enqueue(request, timeout_s=1.0) is None
    finally:
        await streams.close()
        await link.close()


async def test_a_refusal_is_the_same_over_a_call_and_over_the_stream(stage: ServerStage) -> None:
    async with Client(stage.target, namespace="nowhere") as client:
        for number in range(3):
            with pytest.raises(NotFound, match="nowhere"):
                await client.enqueue(double, number)
