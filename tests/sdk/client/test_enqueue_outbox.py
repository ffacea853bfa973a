"""How enqueues are combined, split and repeated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tenure import Client
from tenure.errors import NotFound, PayloadTooLarge, Unavailable
from tenure.sdk.client.enqueue_outbox import EnqueueOutbox
from tenure.sdk.client.task_bytes import request_bytes, task_bytes, varint
from tenure.sdk.client.task_stream import TaskStreams
from tenure.sdk.transport.channel import Channel
from tenure.v1 import error_pb2, task_pb2
from tenure.v1 import task_service_pb2 as pb
from tests.polling import eventually
from tests.sdk.client.stage import ServerStage, echo

IDS = [f"0190c2ad-c23e-7232-8b43-2789e93f{number:04x}" for number in range(5_000)]
SHARED = task_pb2.NewTask(type="double", task_queue="default").SerializeToString()


class FakeServer(grpc.GenericRpcHandler):
    """Keeps the requests, and answers each task with the errors that wait for its id."""

    def __init__(self) -> None:
        self.requests: list[pb.EnqueueTasksRequest] = []
        self.errors: dict[str, list[error_pb2.ErrorDetail]] = {}
        self.is_open = asyncio.Event()
        self.is_open.set()

    def service(self, call: grpc.HandlerCallDetails) -> Any:
        if not call.method.endswith("/EnqueueTasks"):
            # Without the stream every request is a call.
            return None
        return grpc.unary_unary_rpc_method_handler(
            self._answer,
            pb.EnqueueTasksRequest.FromString,
            pb.EnqueueTasksResponse.SerializeToString,
        )

    async def _answer(self, request: pb.EnqueueTasksRequest, _: object) -> pb.EnqueueTasksResponse:
        self.requests.append(request)
        await self.is_open.wait()
        answer = pb.EnqueueTasksResponse()
        for task in request.tasks:
            result = answer.results.add(task_id=task.task_id)
            if self.errors.get(task.task_id):
                result.error.CopyFrom(self.errors[task.task_id].pop(0))
        return answer

    @property
    def sizes(self) -> list[int]:
        return [len(request.tasks) for request in self.requests]


@pytest.fixture
async def fake() -> AsyncIterator[tuple[FakeServer, EnqueueOutbox]]:
    server, handler = grpc.aio.server(), FakeServer()
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    link = Channel(f"127.0.0.1:{port}")
    streams = TaskStreams(link, "default")
    outbox = EnqueueOutbox(link, streams, "default", 30.0)
    yield handler, outbox
    handler.is_open.set()
    await outbox.close()
    await streams.close()
    await link.close()
    await server.stop(None)


def task(task_id: str) -> bytes:
    return task_bytes(SHARED, task_id, b"{}")


def send(outbox: EnqueueOutbox, count: int) -> asyncio.Future[list[str]]:
    return asyncio.gather(*(outbox.send(task(each)) for each in IDS[:count]))


async def test_what_is_asked_for_at_once_goes_in_one_request(
    fake: tuple[FakeServer, EnqueueOutbox],
) -> None:
    server, outbox = fake
    assert await send(outbox, 500) == IDS[:500]
    assert server.sizes == [500]
    assert server.requests[0].independent
    assert not server.requests[0].is_resend


async def test_what_is_asked_for_meanwhile_goes_in_the_next_up_to_a_thousand(
    fake: tuple[FakeServer, EnqueueOutbox],
) -> None:
    server, outbox = fake
    server.is_open.clear()
    first = asyncio.ensure_future(outbox.send(task(IDS[-1])))
    await eventually(lambda: len(server.requests) == 1)
    rest = send(outbox, 2_500)
    server.is_open.set()
    await first
    await rest
    assert server.sizes == [1, 1_000, 1_000, 500]


async def test_a_task_that_may_succeed_later_is_sent_again_marked_and_alone(
    fake: tuple[FakeServer, EnqueueOutbox],
) -> None:
    server, outbox = fake
    later = error_pb2.ErrorDetail(code="unavailable", reason="undecided", retry_after_ms=20)
    never = error_pb2.ErrorDetail(code="not_found", message="no")
    server.errors = {IDS[1]: [later, later], IDS[2]: [never]}
    sent = [asyncio.ensure_future(outbox.send(task(each))) for each in IDS[:4]]
    await asyncio.wait(sent)
    assert [sent[0].result(), sent[1].result(), sent[3].result()] == [IDS[0], IDS[1], IDS[3]]
    assert isinstance(sent[2].exception(), NotFound)
    assert server.sizes == [4, 1, 1]
    assert [each.is_resend for each in server.requests] == [False, True, True]


async def test_others_go_on_while_one_is_repeated(fake: tuple[FakeServer, EnqueueOutbox]) -> None:
    server, outbox = fake
    later = error_pb2.ErrorDetail(code="unavailable", retry_after_ms=60_000)
    server.errors = {IDS[0]: [later]}
    slow = asyncio.ensure_future(outbox.send(task(IDS[0])))
    await eventually(lambda: len(server.requests) == 1)
    assert await outbox.send(task(IDS[1])) == IDS[1]
    # A pause beyond its time is not waited for.
    with pytest.raises(Unavailable):
        await slow


async def test_a_caller_that_has_gone_is_not_sent(fake: tuple[FakeServer, EnqueueOutbox]) -> None:
    server, outbox = fake
    server.is_open.clear()
    first = asyncio.ensure_future(outbox.send(task(IDS[0])))
    await eventually(lambda: len(server.requests) == 1)
    second = asyncio.ensure_future(outbox.send(task(IDS[1])))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    server.is_open.set()
    await first
    assert await outbox.send(task(IDS[2])) == IDS[2]
    sent = [each.task_id for request in server.requests for each in request.tasks]
    assert sent == [IDS[0], IDS[2]]


async def test_closing_tells_those_in_flight_and_those_that_wait(
    fake: tuple[FakeServer, EnqueueOutbox],
) -> None:
    server, outbox = fake
    server.is_open.clear()
    first = asyncio.ensure_future(outbox.send(task(IDS[0])))
    await eventually(lambda: len(server.requests) == 1)
    second = asyncio.ensure_future(outbox.send(task(IDS[1])))
    await asyncio.sleep(0)
    await outbox.close()
    for each in (first, second):
        with pytest.raises(Unavailable, match="closed"):
            await each


async def test_a_server_with_less_room_gets_smaller_requests(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tenure.db"
    async with ServerStage(url, body_bytes_max=100_000) as stage, Client(stage.target) as client:
        sent = (client.enqueue(echo, b"x" * size) for size in [50_000] * 10 + [200_000])
        answers = await asyncio.gather(*sent, return_exceptions=True)
        assert isinstance(answers.pop(), PayloadTooLarge)
        assert not [each for each in answers if isinstance(each, BaseException)]
        assert await stage.task_count() == 10


@pytest.mark.parametrize("data", [b"", b"x", b"x" * 127, b"x" * 128, b"x" * 20_000])
def test_bytes_are_what_protobuf_would_write(data: bytes) -> None:
    bodies = [
        task_bytes(SHARED, each, data, run_at_ms)
        for each, run_at_ms in zip(IDS, (0, 1 << 41), strict=False)
    ]
    found = pb.EnqueueTasksRequest.FromString(
        request_bytes("ns", bodies, independent=True, is_resend=True)
    )
    wanted = pb.EnqueueTasksRequest(namespace_id="ns", independent=True, is_resend=True)
    for task_id, run_at_ms in zip(IDS, (0, 1 << 41), strict=False):
        wanted.tasks.add(
            task_id=task_id, type="double", task_queue="default", input=data, run_at_ms=run_at_ms
        )
    assert found == wanted


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 16_383, 16_384, 2**41, 2**63 - 1])
def test_numbers_are_what_protobuf_would_write(number: int) -> None:
    assert (
        varint(number) == task_pb2.NewTask(run_at_ms=number).SerializeToString()[1:] or not number
    )
