"""What the fuzzers found once, each as a test of its own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any, cast

import grpc
import grpc.aio
import msgspec
import pytest
from structlog.testing import capture_logs

from tenure.api.guard.access import Access
from tenure.api.guard.rate_limit import Allowance
from tenure.api.http import openapi
from tenure.api.http.edge import strict_json
from tenure.api.http.route.task import body
from tenure.api.http.table import OPERATIONS
from tenure.api.readiness import Readiness
from tenure.api.rpc.boundary import Boundary
from tenure.api.rpc.context import Context
from tenure.api.rpc.overload_interceptor import OverloadInterceptor
from tenure.api.rpc.served.served_address import ServedAddresses
from tenure.api.rpc.service.task_service import TaskService
from tenure.api.rpc.service_spec import ServiceDependencies
from tenure.api.rpc.session.worker_session import WorkerSession
from tenure.api.rpc.view.task_view import SpecReader, read_options
from tenure.core.address import AllowList
from tenure.core.limits import JSON_DEPTH_MAX
from tenure.engine.dial.dialer import Dialer
from tenure.engine.dial.resolver import SystemResolver
from tenure.engine.engine import Engine
from tenure.sdk.worker.execution import frame
from tenure.v1 import session_service_pb2, task_pb2, worker_pb2
from tenure.v1 import task_service_pb2 as pb
from tests.api.rpc.conftest import dialect, engine, wire, world
from tests.api.rpc.test_session import wait_for_suspicion
from tests.api.rpc.wire import Wire
from tests.bounds import ANSWER_S
from tests.engine.world import NAMESPACE

__all__ = ["dialect", "engine", "wire", "world"]


async def test_a_client_that_leaves_while_its_tasks_are_taken_in_one_by_one_leaves_nothing_behind(
    engine: Engine, wire: Wire
) -> None:
    bad = wire.new(options=task_pb2.TaskOptions(kind=cast("Any", 99)))
    tasks = [wire.new(), wire.new(), bad]
    request = pb.EnqueueTasksRequest(namespace_id=NAMESPACE, tasks=tasks, independent=True)
    served = ServedAddresses(Dialer(SystemResolver()), AllowList())
    shared = ServiceDependencies(
        engine, Allowance(engine.clock), Readiness(engine), lambda *_: None, served
    )
    service = TaskService(shared)
    call = asyncio.ensure_future(service.EnqueueTasks(request, cast("Context", None)))
    # It waits for the store now; what it has not begun is never begun.
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


def test_options_that_are_too_large_to_be_good_are_not_remembered() -> None:
    reader = SpecReader(read_options)
    good = task_pb2.TaskOptions(start_to_close_ms=1, resources={"gpu": "1"})
    huge = task_pb2.TaskOptions(resources={f"k{number}": "v" for number in range(10_000)})
    assert reader.read(good) is reader.read(good)
    assert reader.read(huge) is not reader.read(huge)


async def test_a_write_to_a_client_that_has_left_is_no_failure_of_the_server(
    engine: Engine,
) -> None:
    codes: asyncio.Queue[str] = asyncio.Queue()

    async def watch(_: AsyncIterator[object], context: Context) -> None:
        await context.write(pb.WatchTasksResponse())
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await context.write(pb.WatchTasksResponse())

    def count(*told: Any) -> None:
        codes.put_nowait(told[2])

    overload = OverloadInterceptor(Allowance(engine.clock).admission, count, engine.clock)
    boundary = Boundary(count, Access(engine), overload)
    server = grpc.aio.server(interceptors=[boundary])
    handler = grpc.stream_stream_rpc_method_handler(
        watch, pb.WatchTasksRequest.FromString, pb.WatchTasksResponse.SerializeToString
    )
    handlers = {"WatchTasks": handler}
    made = grpc.method_handlers_generic_handler("tenure.v1.TaskService", handlers)
    server.add_generic_rpc_handlers((made,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    with capture_logs() as logs:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call: Any = channel.stream_stream("/tenure.v1.TaskService/WatchTasks")()
            await call.read()
            call.cancel()
            async with asyncio.timeout(ANSWER_S):
                assert await codes.get() == "cancelled"
        await server.stop(None)
    assert not [each for each in logs if each["log_level"] == "error"]


class _Gone:
    """The end of a stream whose worker has just died."""

    async def write(self, _: object) -> None:
        raise grpc.aio.InternalError


async def test_a_worker_that_dies_while_it_is_written_to_is_suspected(
    engine: Engine, wire: Wire
) -> None:
    registered = await wire.register(mode=worker_pb2.WORKER_MODE_SESSION)
    hello = session_service_pb2.Hello(
        namespace_id=NAMESPACE, worker_id=registered.worker_id, session_no=1, window=1
    )
    beats = Allowance(engine.clock).beats
    session = WorkerSession(engine, cast("Context", _Gone()), hello, beats)

    async def nothing() -> AsyncIterator[session_service_pb2.ClientFrame]:
        await asyncio.Event().wait()
        yield session_service_pb2.ClientFrame()

    with pytest.raises(grpc.aio.InternalError):
        await session.serve(nothing())
    await wait_for_suspicion(wire, registered.worker_id)


def _documented(name: str) -> set[str]:
    (operation,) = (each for each in OPERATIONS if each.name == name)
    found = openapi.document([operation], "0")["paths"][operation.path]
    return set(found[operation.method.lower()]["responses"])


def test_the_statuses_of_a_request_that_is_itself_too_large_or_too_slow_are_documented() -> None:
    assert "431" in _documented("listTasks")
    assert {"408", "431"} <= _documented("enqueueTask")


def test_evicting_a_worker_that_is_offline_is_documented_as_the_conflict_that_it_is() -> None:
    assert "409" in _documented("evictWorker")
    assert "410" not in _documented("evictWorker")


def test_a_text_with_many_brackets_is_a_good_payload() -> None:
    text = b'"%b"' % (b"[" * (JSON_DEPTH_MAX + 1))
    task = strict_json.decode(b'{"type":"t","queue":"q","input":%b}' % text, body.EnqueueBody)
    assert bytes(cast("msgspec.Raw", task.input)) == text


@pytest.mark.parametrize("text", [b"\x81\xa4type\xa2\xff\xfe", b"\x81\xa1x" + b"\x91" * 9_000])
def test_a_frame_with_bytes_that_are_no_text_or_nest_too_deep_is_broken(text: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(len(text).to_bytes(4, "big") + text)
        with pytest.raises(frame.BrokenFrame):
            frame.Frames(ours).read(msgspec.msgpack.Decoder(frame.Report))
