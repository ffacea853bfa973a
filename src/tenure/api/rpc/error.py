"""Typed errors as gRPC statuses, and beside the items of a frame."""

from __future__ import annotations

from typing import Final

import grpc
from google.protobuf import any_pb2
from google.rpc import status_pb2
from grpc_status import rpc_status

from tenure.errors import ERRORS, Rejection, TenureError, Unavailable
from tenure.v1 import error_pb2

RETRY_AFTER_MS: Final = 100
_NUMBERS: Final = {"expected_attempt", "received_attempt", "limit", "retry_after_ms"}
_KNOWN: Final = frozenset(error_pb2.ErrorDetail.DESCRIPTOR.fields_by_name)


def detail(error: TenureError | Rejection) -> error_pb2.ErrorDetail:
    """Return the error message for the caller."""
    if isinstance(error, Rejection):
        error = error.to_error()
    made = error_pb2.ErrorDetail(code=error.code, message=error.message)
    for name, value in error.fields.items():
        if name in _KNOWN:
            setattr(made, name, int(value) if name in _NUMBERS else str(value))
    return made


def status(error: TenureError) -> grpc.Status:
    """Return the status for an error, with its detail as in ``google.rpc``."""
    packed = any_pb2.Any()
    packed.Pack(detail(error))
    code = grpc.StatusCode[ERRORS[error.code].grpc_status]
    number: int = code.value[0]
    made = status_pb2.Status(code=number, message=error.message, details=[packed])
    packed_status: grpc.Status = rpc_status.to_status(made)
    return packed_status


def shutting_down(advice: str) -> Unavailable:
    """Return the error for a stream that the server closes because it stops."""
    message = f"The server is shutting down. {advice}"
    return Unavailable(message, reason="shutting_down", retry_after_ms=RETRY_AFTER_MS)
