"""Typed errors as gRPC statuses, and beside the items of a frame."""

from __future__ import annotations

from functools import partial
from typing import Final

import grpc
from google.protobuf import any_pb2
from google.protobuf.descriptor import Descriptor
from google.rpc import status_pb2
from grpc_status import rpc_status

from tenure.api.rpc.field_name import proto_name
from tenure.errors import ERRORS, Rejection, TenureError, Unavailable, renamed
from tenure.v1 import error_pb2

RETRY_AFTER_MS: Final = 100
_FIELDS: Final = error_pb2.ErrorDetail.DESCRIPTOR.fields_by_name
_KNOWN: Final = frozenset(_FIELDS)
_NUMBERS: Final = frozenset(
    name for name, field in _FIELDS.items() if field.type != field.TYPE_STRING
)


def detail(
    error: TenureError | Rejection, request: Descriptor | None = None
) -> error_pb2.ErrorDetail:
    """Return what the caller is told of an error, in the names of its ``request``."""
    if isinstance(error, Rejection):
        error = error.to_error()
    made = error_pb2.ErrorDetail(code=error.code, message=error.message)
    for name, value in error.fields.items():
        if name in _KNOWN:
            setattr(made, name, int(value) if name in _NUMBERS else str(value))
    if made.field:
        rename = partial(proto_name, request=request)
        made.message, made.field = renamed(made.message, made.field, rename)
    return made


def status(error: TenureError, request: Descriptor | None = None) -> grpc.Status:
    """Return the status for an error, with its detail in the way of ``google.rpc``."""
    told = detail(error, request)
    packed = any_pb2.Any()
    packed.Pack(told)
    code = grpc.StatusCode[ERRORS[error.code].grpc_status]
    number: int = code.value[0]
    made = status_pb2.Status(code=number, message=told.message, details=[packed])
    packed_status: grpc.Status = rpc_status.to_status(made)
    return packed_status


def shutting_down(advice: str) -> Unavailable:
    """Return the error for a stream that the server closes because it stops."""
    message = f"The server is shutting down. {advice}"
    return Unavailable(message, reason="shutting_down", retry_after_ms=RETRY_AFTER_MS)
