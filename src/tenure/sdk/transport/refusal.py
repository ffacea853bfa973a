"""What the failure of a gRPC call means, as one of the errors of ``tenure.errors``."""

from __future__ import annotations

import re
from typing import Final

from tenure import errors
from tenure.errors import ERRORS, DeadlineExceeded, TenureError, Unavailable
from tenure.sdk.transport.python_name import in_python
from tenure.sdk.transport.tls import IN_CODE, SPEAKS_HTTP, trouble
from tenure.transport import grpc
from tenure.v1 import error_pb2

UNREACHABLE: Final = "unreachable"
BROKEN: Final = "broken"
_DETAILS_KEY: Final = "grpc-status-details-bin"
_NOT_CONNECTED: Final = ("failed to connect", "errors resolving", "dns resolution failed")
# What gRPC itself, or a proxy on the way, answers without a detail of ours.
_PLAIN: Final[dict[grpc.StatusCode, type[TenureError]]] = {
    grpc.StatusCode.INVALID_ARGUMENT: errors.InvalidArgument,
    grpc.StatusCode.NOT_FOUND: errors.NotFound,
    grpc.StatusCode.PERMISSION_DENIED: errors.PermissionDenied,
    grpc.StatusCode.RESOURCE_EXHAUSTED: errors.PayloadTooLarge,
    grpc.StatusCode.UNAUTHENTICATED: errors.Unauthenticated,
    grpc.StatusCode.UNIMPLEMENTED: errors.Unimplemented,
}


# What to do in Python about a refusal, behind what the server says.
_ADVICE: Final = {
    "unauthenticated": "Give one with api_key=… or TENURE_API_KEY.",
    "permission_denied": "Use an API key with a role that allows it.",
    "not_found": "Check the id, and the namespace (namespace=… or TENURE_NAMESPACE).",
    "task_already_terminal": "What has ended never changes; retry() makes a new task of one.",
    "payload_too_large": "Store the data elsewhere and send a reference to it.",
}


_ERRNO: Final = re.compile(r" \(\d+\)$")


def translate(error: grpc.aio.AioRpcError, target: str, *, is_tls: bool = False) -> TenureError:
    """Return what a failed call to ``target`` means."""
    detail = detail_of(error)
    if detail is not None:
        return from_detail(detail)
    status, text = error.code(), error.details() or "no details"
    if status is grpc.StatusCode.DEADLINE_EXCEEDED:
        message = f"The server at {target} did not answer in time. Repeating the call is safe."
        return DeadlineExceeded(message, reason=BROKEN)
    plain = _PLAIN.get(status)
    if plain is not None:
        return plain(f"The call to {target} failed with {status.name}: {text}")
    return _no_answer(status, text, target, is_tls=is_tls)


def _no_answer(status: grpc.StatusCode, text: str, target: str, *, is_tls: bool) -> Unavailable:
    """Return the error for a connection that was not made, or broke.

    A server of ours answers every call with a detail, so other answers come from the network.
    """
    # The end of gRPC's account is where it says what the system said, sometimes with its number.
    why = _ERRNO.sub("", text.rpartition(": ")[2].strip(" ]."))
    lower = text.lower()
    is_told = _is_unmade(lower) or any(mark in lower for mark in SPEAKS_HTTP)
    found = trouble(text, target, IN_CODE, is_tls=is_tls) if is_told else None
    if found is not None:
        return Unavailable(f"{found.what} {found.advice}", reason=UNREACHABLE)
    if _is_unmade(lower):
        message = (
            f"No server answers at {target} ({why}). "
            "Start one with `tenure server`, or name another target."
        )
        return Unavailable(message, reason=UNREACHABLE)
    name = "" if status is grpc.StatusCode.UNAVAILABLE else f"{status.name}: "
    message = f"The connection to {target} broke ({name}{why}). Repeating the call is safe."
    return Unavailable(message, reason=BROKEN)


def _is_unmade(lower: str) -> bool:
    """Tell whether gRPC's account is of a connection that was not made."""
    return lower.startswith(_NOT_CONNECTED)


def is_silence(error: TenureError) -> bool:
    """Tell whether it was not a server of ours that said this."""
    return error.fields.get("reason") in {UNREACHABLE, BROKEN}


def is_unsent(error: TenureError) -> bool:
    """Tell whether the request cannot have reached any server: there was no connection."""
    return error.fields.get("reason") == UNREACHABLE


def is_elsewhere(error: TenureError) -> bool:
    """Tell whether another server may do at once what this one cannot do now."""
    # An undecided enqueue is undecided everywhere.
    return isinstance(error, Unavailable) and error.fields.get("reason") != "undecided"


def detail_of(error: grpc.aio.AioRpcError) -> error_pb2.ErrorDetail | None:
    """Return the typed detail of a failed call, if a server of ours sent one."""
    # Loaded with the first refusal: most processes never meet one.
    from google.protobuf.message import DecodeError  # noqa: PLC0415
    from google.rpc import status_pb2  # noqa: PLC0415

    for key, value in error.trailing_metadata() or ():
        if key != _DETAILS_KEY:
            continue
        found = error_pb2.ErrorDetail()
        try:
            status = status_pb2.Status.FromString(value)
            if any(packed.Unpack(found) for packed in status.details):
                return found
        except DecodeError:
            # It is not from a server of ours.
            return None
    return None


def from_detail(detail: error_pb2.ErrorDetail) -> TenureError:
    """Return the error that a typed detail stands for."""
    fields: dict[str, str | int] = {
        field.name: value
        for field, value in detail.ListFields()
        if field.name not in {"code", "message"}
    }
    if detail.field:
        fields["field"] = in_python(detail.field)
    message = in_python(detail.message)
    if detail.code in _ADVICE:
        message = f"{message.removesuffix('.')}. {_ADVICE[detail.code]}"
    spec = ERRORS.get(detail.code)
    if spec is None:
        # A newer server may know more codes than we do.
        return Unavailable(f"{detail.code}: {message}", reason="unknown_code")
    return spec.exception(message, **fields)


def copied(error: Exception) -> Exception:
    """Return a copy for one more caller: an error that is raised twice would mix both traces."""
    if not isinstance(error, TenureError):
        return error
    copy = type(error)(error.message, **error.fields)
    copy.__cause__ = error.__cause__
    return copy
