"""From an error of the one table to its HTTP answer."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import msgspec
from starlette.responses import Response

from tenure.errors import ERRORS, InvalidArgument, TenureError, Unavailable, renamed, wire_name

JSON: Final = "application/json"
RETRY_AFTER_MS: Final = 1_000
_MS_PER_S: Final = 1_000
# The core names these as gRPC does, and all others as HTTP does. Other names in snake case are the
# caller's own and stay as they were sent.
_FIELDS: Final = frozenset({"page_size", "page_token", "task_id"})


class MethodNotAllowed(InvalidArgument):
    """The path does not support this method. Use one of those in the Allow header."""

    def __init__(self, allowed: list[str]) -> None:
        """Name the methods of the path."""
        self.allowed = ", ".join(sorted(allowed))
        super().__init__(f"This path supports only {self.allowed}.", field="method")


class AmbiguousHead(InvalidArgument):
    """The head contradicts itself about the body, so two readers could read it differently."""


def error_response(error: TenureError, status: int | None = None) -> Response:
    """Return the answer for an error; ``status`` replaces that of the table."""
    headers = {"cache-control": "no-store"}
    if isinstance(error, MethodNotAllowed):
        status = HTTPStatus.METHOD_NOT_ALLOWED
        headers["allow"] = error.allowed
    if isinstance(error, AmbiguousHead):
        # The start of the next request is not certain.
        headers["connection"] = "close"
    status = status or ERRORS[error.code].http_status
    if status == HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    retry_after_ms = error.fields.get("retry_after_ms")
    if isinstance(retry_after_ms, int):
        # The header has whole seconds only; never less than the value in the body.
        headers["retry-after"] = str(-(-retry_after_ms // _MS_PER_S))
    return Response(error_body(error), status_code=status, headers=headers, media_type=JSON)


def error_body(error: TenureError) -> bytes:
    """Return the JSON of an error: its code, its message and the fields that belong to it."""
    fields = {wire_name(name): value for name, value in error.fields.items()}
    message = error.message
    if "field" in fields:
        message, fields["field"] = renamed(message, str(fields["field"]), _http_name)
    return msgspec.json.encode({"error": error.code, "message": message, **fields})


def _http_name(name: str) -> str:
    return wire_name(name) if name in _FIELDS else name


def internal(request_id: str) -> Unavailable:
    """Return the error for a bug of ours; the log has the details."""
    message = f"The server could not answer request {request_id}. See its log. Try again."
    return Unavailable(message, reason="internal", retry_after_ms=RETRY_AFTER_MS)
