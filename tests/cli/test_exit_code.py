"""Every error of the one table, as a command ends with it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent import futures
from typing import Any, Final, NoReturn

import grpc
import pytest
from google.protobuf import any_pb2
from google.rpc import status_pb2
from grpc_status import rpc_status

from tenure.cli.exit_code import EXIT_CODES, ExitCode
from tenure.cli.failure import ADVICE
from tenure.errors import ERRORS
from tenure.v1 import error_pb2
from tests.cli.conftest import invoke

_BARE: Final = {
    "UNAUTHENTICATED": ExitCode.NOT_ALLOWED,
    "PERMISSION_DENIED": ExitCode.NOT_ALLOWED,
    "UNIMPLEMENTED": ExitCode.FAILED,
    "RESOURCE_EXHAUSTED": ExitCode.USAGE,
    "DEADLINE_EXCEEDED": ExitCode.UNREACHABLE,
    "UNAVAILABLE": ExitCode.UNREACHABLE,
    "INTERNAL": ExitCode.FAILED,
}


def test_every_error_has_an_exit_code_and_advice() -> None:
    assert EXIT_CODES.keys() == ERRORS.keys()
    assert ADVICE.keys() == ERRORS.keys()
    assert all(advice.why and advice.hint for advice in ADVICE.values())


def test_what_may_succeed_later_has_the_exit_code_for_it() -> None:
    later = {code for code, end in EXIT_CODES.items() if end is ExitCode.UNREACHABLE}
    assert later == {code for code, spec in ERRORS.items() if spec.is_retryable}


class _Refusal(grpc.GenericRpcHandler):
    """Answers every call with the error that stands in it behind an exclamation mark."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        del handler_call_details
        return grpc.unary_unary_rpc_method_handler(self._refuse)

    def _refuse(self, request: bytes, context: grpc.ServicerContext) -> NoReturn:
        found = re.search(rb"!([A-Za-z_]+)", request)
        assert found is not None
        name = found[1].decode()
        if name in ERRORS:
            context.abort_with_status(rpc_status.to_status(_status(name)))
        context.abort(grpc.StatusCode[name], "somebody in between")


def _status(code: str) -> status_pb2.Status:
    detail = error_pb2.ErrorDetail(code=code, message=f"Refused: {code}.", state="FAILED")
    packed = any_pb2.Any()
    packed.Pack(detail)
    number: int = grpc.StatusCode[ERRORS[code].grpc_status].value[0]
    return status_pb2.Status(code=number, message=detail.message, details=[packed])


@pytest.fixture(scope="module")
def refusing() -> Iterator[str]:
    """Return the address of a server that refuses everything."""
    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[_Refusal()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(0).wait()


@pytest.mark.parametrize("code", ERRORS)
def test_a_typed_error_is_told_with_why_and_what_next(refusing: str, code: str) -> None:
    result = invoke("tasks", "show", f"!{code}", "--target", refusing)
    assert result.exit_code == EXIT_CODES[code]
    assert result.stderr == (
        f"Error: Refused: {code}.\n  Why: {ADVICE[code].why}\n  Next: {ADVICE[code].hint}\n"
    )
    assert result.stdout == ""


@pytest.mark.parametrize(("status", "exit_code"), _BARE.items())
def test_an_error_without_detail_is_judged_by_its_status(
    refusing: str, status: str, exit_code: ExitCode
) -> None:
    result = invoke("tasks", "show", f"!{status}", "--target", refusing)
    assert result.exit_code == exit_code
    assert "somebody in between" in result.stderr


def test_an_error_is_json_when_the_output_is(refusing: str) -> None:
    result = invoke("tasks", "show", "!wrong_state", "--target", refusing, "-o", "jsonl")
    told = json.loads(result.stderr)
    assert told["error"] == "wrong_state"
    assert told["message"] == "Refused: wrong_state."
    assert told["state"] == "FAILED"


def test_a_server_that_is_not_there_is_told_with_what_to_do() -> None:
    result = invoke("tasks", "ls", "--target", "127.0.0.1:1")
    assert result.exit_code == ExitCode.UNREACHABLE
    assert "There is no Tenure server at 127.0.0.1:1." in result.stderr
    assert "tenure server" in result.stderr


def test_an_address_without_a_port_is_a_mistake_of_usage() -> None:
    result = invoke("tasks", "ls", "--target", "localhost")
    assert result.exit_code == ExitCode.USAGE
    assert "HOST:PORT" in result.stderr


def test_a_task_whose_fate_is_not_known_is_named(refusing: str) -> None:
    result = invoke("tasks", "enqueue", "!unavailable", "--target", refusing)
    assert result.exit_code == ExitCode.UNREACHABLE
    assert "If the task was accepted all the same, its id is " in result.stderr
