"""Failures of gRPC calls as errors for people."""

from __future__ import annotations

from typing import Final, cast

import grpc
from grpc_status import rpc_status

from tenure.cli.exit_code import ExitCode
from tenure.cli.failure import CliError, refused
from tenure.errors import wire_name
from tenure.sdk.transport.tls import Words, trouble
from tenure.v1 import error_pb2

# The code of a call that never left this machine.
NOT_CONNECTED: Final = "unreachable"
_NOT_CONNECTED: Final = ("failed to connect", "errors resolving", "dns resolution failed")
_ON_THE_LINE: Final = Words("--tls", "--tls-ca", "--tls-cert and --tls-key")
# What a proxy, or gRPC itself, answers without a detail of ours.
_CODES: Final = {
    grpc.StatusCode.UNAUTHENTICATED: "unauthenticated",
    grpc.StatusCode.PERMISSION_DENIED: "permission_denied",
    grpc.StatusCode.UNIMPLEMENTED: "unimplemented",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "payload_too_large",
    grpc.StatusCode.DEADLINE_EXCEEDED: "deadline_exceeded",
}


def detail_of(error: grpc.RpcError) -> error_pb2.ErrorDetail | None:
    """Return the typed detail of a failed call, if the server sent one."""
    try:
        status = rpc_status.from_call(_call(error))
    except ValueError:
        # The details contradict the status: somebody in between made them up.
        return None
    for packed in status.details if status is not None else ():
        found = error_pb2.ErrorDetail()
        if packed.Unpack(found):
            return found
    return None


def failure_of(error: grpc.RpcError, target: str, *, is_tls: bool = False) -> CliError:
    """Return what a failed call means for the user of ``target``."""
    detail = detail_of(error)
    if detail is not None:
        return refusal_of(detail)
    call = _call(error)
    status = call.code()
    if status is grpc.StatusCode.UNAVAILABLE:
        return _unreachable(call, target, is_tls=is_tls)
    message = f"The call to {target} failed with {status.name}: {call.details() or 'no details'}"
    return refused(_CODES.get(status, ""), message, {})


def _unreachable(call: grpc.Call, target: str, *, is_tls: bool) -> CliError:
    details = call.details() or "no answer"
    # The end of gRPC's account is where it says what the system said.
    why = details.rpartition(": ")[2].strip(" ].") + "."
    if not is_unsent(call):
        return CliError(
            f"The connection to {target} broke.",
            why=why,
            hint="The server may or may not have done it. Check, then try again.",
            exit_code=ExitCode.UNREACHABLE,
            code="unavailable",
        )
    found = trouble(details, target, _ON_THE_LINE, is_tls=is_tls)
    if found is not None:
        return CliError(
            found.what, hint=found.advice, exit_code=ExitCode.UNREACHABLE, code=NOT_CONNECTED
        )
    return CliError(
        f"There is no Tenure server at {target}.",
        why=why,
        hint="Start one with `tenure server`, or name another with --target or TENURE_TARGET.",
        exit_code=ExitCode.UNREACHABLE,
        code=NOT_CONNECTED,
    )


def is_unsent(error: grpc.RpcError | grpc.Call) -> bool:
    """Tell whether a call has failed because there was no connection."""
    call = cast("grpc.Call", error)
    details = (call.details() or "").lower()
    return call.code() is grpc.StatusCode.UNAVAILABLE and details.startswith(_NOT_CONNECTED)


def refusal_of(detail: error_pb2.ErrorDetail) -> CliError:
    """Return what a typed refusal means; its fields keep the names that they have in JSON."""
    fields: dict[str, object] = {
        wire_name(field.name): value
        for field, value in detail.ListFields()
        if field.name not in {"code", "message"}
    }
    return refused(detail.code, detail.message, fields)


def _call(error: grpc.RpcError) -> grpc.Call:
    """Return a failed call as what it is as well; the class of the errors does not say so."""
    return cast("grpc.Call", error)
