"""The way to a server: targets, errors, pauses."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.protobuf import any_pb2
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import status_pb2

from tenure import errors
from tenure.errors import ERRORS, RateLimited, Unavailable
from tenure.sdk.transport import refusal
from tenure.sdk.transport.channel import Backoff, Channel, Method
from tenure.sdk.transport.target import split_targets
from tenure.v1 import error_pb2
from tenure.v1 import workflow_service_pb2 as pb

HEALTH = Method.of("WorkflowService/HealthCheck", pb.HealthCheckRequest, pb.HealthCheckResponse)
Handler = Any


def rpc_error(
    status: grpc.StatusCode, text: str = "", trailing: tuple[tuple[str, bytes], ...] = ()
) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(
        status, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details=text
    )


def with_detail(**fields: Any) -> grpc.aio.AioRpcError:
    packed = any_pb2.Any()
    packed.Pack(error_pb2.ErrorDetail(**fields))
    status = status_pb2.Status(code=9, message="m", details=[packed])
    trailing = (("grpc-status-details-bin", status.SerializeToString()),)
    return rpc_error(grpc.StatusCode.FAILED_PRECONDITION, "m", trailing)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("host:1", ("host:1",)),
        ("a:1, b:2,", ("a:1", "b:2")),
        (["a:1", "b:2"], ("a:1", "b:2")),
        ("[::1]:7301", ("[::1]:7301",)),
        ("dns:///host:7301", ("dns:///host:7301",)),
        ("unix:/tmp/socket", ("unix:/tmp/socket",)),
    ],
)
def test_targets_are_one_or_several(given: str | list[str], found: tuple[str, ...]) -> None:
    assert split_targets(given) == found


@pytest.mark.parametrize("given", ["", ",", "host", "http://host:7300", "host:port", "a:1,b"])
def test_what_is_no_target_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        Channel(given)


@pytest.mark.parametrize("code", ERRORS)
def test_every_code_of_the_wire_becomes_its_exception(code: str) -> None:
    error = refusal.translate(with_detail(code=code, message="It happened."), "host:1")
    assert type(error) is ERRORS[code].exception
    assert error.message.startswith("It happened.")


def test_the_fields_of_a_detail_are_those_of_the_exception() -> None:
    detail = with_detail(code="idempotency_conflict", message="m", task_id="t")
    assert refusal.translate(detail, "host:1").fields == {"task_id": "t"}


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ("startToCloseMs must be a whole number", "start_to_close must be a whole number"),
        ("start_to_close_ms must be", "start_to_close must be"),
        ("retry.maximumAttempts must be", "retry.max_attempts must be"),
        ("task_queue and taskQueue", "queue and queue"),
        ("The key 'taskQueue' of taskId", "The key 'taskQueue' of task_id"),
        ("Nothing of restartToCloseMs", "Nothing of restartToCloseMs"),
    ],
)
def test_names_of_the_protocol_are_read_as_those_of_python(sent: str, read: str) -> None:
    detail = with_detail(code="invalid_argument", message=sent, field="cancelGracePeriodMs")
    error = refusal.translate(detail, "host:1")
    assert error.message == read
    assert error.fields == {"field": "cancel_grace"}


def test_a_code_that_is_not_known_here_is_unavailable() -> None:
    error = refusal.translate(with_detail(code="new_code", message="m"), "host:1")
    assert isinstance(error, Unavailable)
    assert "new_code" in error.message


def test_details_that_somebody_made_up_are_no_details() -> None:
    made_up = rpc_error(
        grpc.StatusCode.UNAVAILABLE, "gone", (("grpc-status-details-bin", b"\xff\xff"),)
    )
    assert refusal.translate(made_up, "host:1").fields == {"reason": "broken"}


@pytest.mark.parametrize(
    ("status", "text", "kind", "said"),
    [
        ("UNAVAILABLE", "failed to connect to all addresses: refused", Unavailable, "No server"),
        ("UNAVAILABLE", "Socket closed", Unavailable, "broke"),
        ("UNAVAILABLE", "Trying to connect an http1.x server", Unavailable, "HTTP port"),
        ("UNKNOWN", "Stream removed", Unavailable, "broke"),
        ("INTERNAL", "Internal error from Core", Unavailable, "broke"),
        ("CANCELLED", "", Unavailable, "broke"),
        ("DEADLINE_EXCEEDED", "", errors.DeadlineExceeded, "did not answer"),
        ("UNIMPLEMENTED", "", errors.Unimplemented, "UNIMPLEMENTED"),
        ("RESOURCE_EXHAUSTED", "larger than max", errors.PayloadTooLarge, "larger"),
        ("UNAUTHENTICATED", "", errors.Unauthenticated, "UNAUTHENTICATED"),
    ],
)
def test_a_status_without_detail_names_the_target(
    status: str, text: str, kind: type[errors.TenureError], said: str
) -> None:
    error = refusal.translate(rpc_error(grpc.StatusCode[status], text), "host:1")
    assert type(error) is kind
    assert said in error.message
    assert "host:1" in error.message


def test_a_pause_is_never_shorter_than_the_server_asks_for() -> None:
    backoff = Backoff()
    pauses = [backoff.next_s(RateLimited(retry_after_ms=500)) for _ in range(20)]
    assert min(pauses) >= 0.5
    assert max(pauses) <= 2.5
    assert len(set(pauses)) > 1


class _Answers(grpc.GenericRpcHandler):
    """A server that answers as it is told, and keeps what came with the calls."""

    def __init__(self) -> None:
        self.failures: list[grpc.StatusCode] = []
        self.metadata: list[dict[str, str]] = []

    def service(self, details: grpc.HandlerCallDetails) -> Handler:
        self.metadata.append({key: str(value) for key, value in details.invocation_metadata})

        async def answer(_: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            if self.failures:
                await context.abort(self.failures.pop(0), "as told")
            return pb.HealthCheckResponse(timestamp=Timestamp(seconds=7)).SerializeToString()

        return grpc.unary_unary_rpc_method_handler(answer)


@pytest.fixture
async def answers() -> AsyncIterator[tuple[_Answers, str]]:
    server = grpc.aio.server()
    handler = _Answers()
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield handler, f"127.0.0.1:{port}"
    await server.stop(None)


async def test_a_call_is_repeated_until_it_is_answered(answers: tuple[_Answers, str]) -> None:
    handler, target = answers
    handler.failures = [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN]
    channel = Channel(target)
    again: list[int] = []

    def mark() -> pb.HealthCheckRequest:
        again.append(1)
        return pb.HealthCheckRequest()

    answer = await channel.call(HEALTH, pb.HealthCheckRequest(), timeout_s=30, again=mark)
    assert (answer.timestamp.seconds, again) == (7, [1, 1])
    await channel.close()


async def test_a_refusal_for_good_is_not_repeated(answers: tuple[_Answers, str]) -> None:
    handler, target = answers
    handler.failures = [grpc.StatusCode.PERMISSION_DENIED]
    channel = Channel(target)
    with pytest.raises(errors.PermissionDenied):
        await channel.call(HEALTH, pb.HealthCheckRequest(), timeout_s=30)
    assert len(handler.metadata) == 1
    await channel.close()


async def test_the_last_error_counts_from_when_the_caller_began_to_wait() -> None:
    channel = Channel("127.0.0.1:1")
    since = time.monotonic() - 600
    with pytest.raises(Unavailable, match=r"It was tried for 6\d\d"):
        await channel.call(HEALTH, pb.HealthCheckRequest(), timeout_s=0.3, since=since)
    await channel.close()


async def test_what_never_left_is_not_marked_as_sent_again(answers: tuple[_Answers, str]) -> None:
    channel = Channel(f"127.0.0.1:1,{answers[1]}")

    def mark() -> pb.HealthCheckRequest:
        raise AssertionError

    await channel.call(HEALTH, pb.HealthCheckRequest(), timeout_s=30, again=mark)
    assert channel.target == answers[1]
    await channel.close()


async def test_the_api_key_travels_with_every_call(answers: tuple[_Answers, str]) -> None:
    handler, target = answers
    channel = Channel(target, api_key="secret")
    await channel.ask(HEALTH, pb.HealthCheckRequest())
    assert handler.metadata[0]["authorization"] == "Bearer secret"
    assert handler.metadata[0]["user-agent"].startswith("tenure-python/")
    await channel.close()


async def test_a_cancelled_caller_is_cancelled_and_not_told_otherwise() -> None:
    # An address that takes connections and never speaks.
    silent = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    channel = Channel(f"127.0.0.1:{silent.sockets[0].getsockname()[1]}")
    call = asyncio.ensure_future(channel.call(HEALTH, pb.HealthCheckRequest(), timeout_s=30))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await channel.close()
    silent.close()


def test_a_synchronous_client_loads_grpc_with_its_first_call_only() -> None:
    program = (
        "import sys, tenure; tenure.SyncClient(); tenure.activity;"
        "assert 'grpc' not in sys.modules, 'grpc';"
        "tenure.Client(); found = [name for name in sys.modules if name.startswith("
        "('tenure.api', 'tenure.engine', 'tenure.store', 'tenure.cli', 'click', 'rich'))];"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
