"""Every error that a caller can get: one tree, one table.

Edges translate only with `ERRORS`. A `Rejection` is the same refusal as a value: `decide` returns
it, because the refusal of one command must not affect the others of its batch.
"""

# The classes are named like their codes, and the table reads by column.
# ruff: noqa: FBT003

import re
from collections.abc import Callable
from typing import ClassVar, Final

import msgspec

__all__ = [
    "ERRORS",
    "AlreadyExists",
    "AttemptMismatch",
    "DataDamaged",
    "DeadlineExceeded",
    "ErrorSpec",
    "IdempotencyConflict",
    "InvalidArgument",
    "InvalidToken",
    "JournalFull",
    "JournalMismatch",
    "NotFound",
    "OutOfOrder",
    "PayloadTooLarge",
    "PermissionDenied",
    "RateLimited",
    "Rejection",
    "TaskAlreadyTerminal",
    "TaskExpired",
    "TenureError",
    "TokenMismatch",
    "TooEarly",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "UnsupportedMediaType",
    "WorkerDraining",
    "WorkerInactive",
    "WrongState",
    "renamed",
    "wire_name",
]

_NAME: Final = re.compile(r"[A-Za-z]\w*")
_DURATION: Final = re.compile(r"(?<![\w.])[a-z]\w*(?:Ms|_ms)\b")
# What comes behind these is the caller's own.
_FREE_KEYS: Final = ("labels.", "resources.")


class TenureError(Exception):
    """The base of all errors of Tenure; only its subclasses are raised.

    `code` is stable and part of the wire contract. `field_names` are the fields that belong to the
    code; an error may carry more. The docstring of a subclass is its default message.
    """

    code: ClassVar[str]
    field_names: ClassVar[tuple[str, ...]] = ()

    def __init__(self, message: str = "", **fields: str | int) -> None:
        self.message = message or " ".join((type(self).__doc__ or "").split())
        self.fields = fields
        super().__init__(self.message)


class WorkerInactive(TenureError):
    """The worker is offline or unknown here. Register again, unless superseded or evicted."""

    code = "worker_inactive"
    field_names = ("reason",)


class TokenMismatch(TenureError):
    """The heartbeat token is stale. Send the full held set with the current token."""

    code = "token_mismatch"
    field_names = ("current_token",)


class WorkerDraining(TenureError):
    """The worker is draining and gets no more work. Finish what it holds, then deregister."""

    code = "worker_draining"


class AttemptMismatch(TenureError):
    """The report is for an attempt that is not live. Stop it; nothing was changed."""

    code = "attempt_mismatch"
    field_names = ("expected_attempt", "received_attempt")


class TaskAlreadyTerminal(TenureError):
    """The task has already ended. Stop working on it; nothing was changed."""

    code = "task_already_terminal"
    field_names = ("state",)


class TaskExpired(TenureError):
    """The attempt timed out or was lost. Stop working on it; nothing was changed."""

    code = "task_expired"


class InvalidToken(TenureError):
    """The task token is malformed, expired or for something else. Use the token of this attempt."""

    code = "invalid_token"


class Unauthenticated(TenureError):
    """The API key is missing or wrong. Send a valid key of this namespace."""

    code = "unauthenticated"


class PermissionDenied(TenureError):
    """The role of this API key does not allow the call. Use a key with another role."""

    code = "permission_denied"


class WrongState(TenureError):
    """The call is not possible in the present state. Check the state, then try again."""

    code = "wrong_state"
    field_names = ("state",)


class NotFound(TenureError):
    """It does not exist in this namespace. Check the id and the namespace."""

    code = "not_found"


class JournalMismatch(TenureError):
    """The code of the workflow does not fit what its run has recorded. Deploy code that fits."""

    code = "journal_mismatch"
    field_names = ("expected", "received", "position")


class JournalFull(TenureError):
    """The journal of the run is full. Let the workflow begin anew with continue_as_new."""

    code = "journal_full"
    field_names = ("limit",)


class OutOfOrder(TenureError):
    """An entry came before an earlier one. Send all entries again from the expected number on."""

    code = "out_of_order"
    field_names = ("expected_no",)


class TooEarly(TenureError):
    """The timer has not fired yet by the time of the server. Report it again after the delay."""

    code = "too_early"
    field_names = ("retry_after_ms",)


class IdempotencyConflict(TenureError):
    """The idempotency key was used with other content. Use a new key or send the same content."""

    code = "idempotency_conflict"
    field_names = ("task_id", "field")


class AlreadyExists(TenureError):
    """The name is taken. Choose another name or change the existing one."""

    code = "already_exists"


class Unimplemented(TenureError):
    """The server does not offer this call. Use a newer server."""

    code = "unimplemented"


class InvalidArgument(TenureError):
    """The request is malformed. Correct the named field and send it again."""

    code = "invalid_argument"
    field_names = ("field",)


class PayloadTooLarge(TenureError):
    """The data is larger than allowed. Store it elsewhere and send a reference."""

    code = "payload_too_large"
    field_names = ("limit",)


class RateLimited(TenureError):
    """A limit is reached and nothing was accepted. Try again after the given delay."""

    code = "rate_limited"
    field_names = ("retry_after_ms",)


class UnsupportedMediaType(TenureError):
    """The content type is not supported. Send application/json."""

    code = "unsupported_media_type"


class DeadlineExceeded(TenureError):
    """The caller's deadline passed before the answer. Repeating the call is safe."""

    code = "deadline_exceeded"


class DataDamaged(TenureError):
    """Stored data is damaged and is not returned. Restore it, or enqueue the task again."""

    code = "data_damaged"
    field_names = ("reason",)


class Unavailable(TenureError):
    """The server cannot answer now. Try again after the given delay; repeating is safe."""

    code = "unavailable"
    field_names = ("reason", "retry_after_ms")


class ErrorSpec(msgspec.Struct, frozen=True, gc=False):
    """What a code means at the edges. Retryable: the same request, unchanged, may succeed later."""

    grpc_status: str
    http_status: int
    is_retryable: bool
    exception: type[TenureError]


ERRORS: dict[str, ErrorSpec] = {
    spec.exception.code: spec
    for spec in (
        ErrorSpec("FAILED_PRECONDITION", 410, False, WorkerInactive),
        ErrorSpec("ABORTED", 409, False, TokenMismatch),
        ErrorSpec("FAILED_PRECONDITION", 409, False, WorkerDraining),
        ErrorSpec("FAILED_PRECONDITION", 409, False, AttemptMismatch),
        ErrorSpec("FAILED_PRECONDITION", 409, False, TaskAlreadyTerminal),
        ErrorSpec("FAILED_PRECONDITION", 410, False, TaskExpired),
        ErrorSpec("UNAUTHENTICATED", 401, False, InvalidToken),
        ErrorSpec("UNAUTHENTICATED", 401, False, Unauthenticated),
        ErrorSpec("PERMISSION_DENIED", 403, False, PermissionDenied),
        ErrorSpec("FAILED_PRECONDITION", 409, False, WrongState),
        ErrorSpec("FAILED_PRECONDITION", 409, False, JournalMismatch),
        ErrorSpec("RESOURCE_EXHAUSTED", 413, False, JournalFull),
        ErrorSpec("ABORTED", 409, False, OutOfOrder),
        ErrorSpec("FAILED_PRECONDITION", 409, False, TooEarly),
        ErrorSpec("NOT_FOUND", 404, False, NotFound),
        ErrorSpec("ALREADY_EXISTS", 409, False, IdempotencyConflict),
        ErrorSpec("ALREADY_EXISTS", 409, False, AlreadyExists),
        ErrorSpec("UNIMPLEMENTED", 501, False, Unimplemented),
        ErrorSpec("INVALID_ARGUMENT", 400, False, InvalidArgument),
        ErrorSpec("RESOURCE_EXHAUSTED", 413, False, PayloadTooLarge),
        ErrorSpec("RESOURCE_EXHAUSTED", 429, True, RateLimited),
        ErrorSpec("INVALID_ARGUMENT", 415, False, UnsupportedMediaType),
        ErrorSpec("DATA_LOSS", 409, False, DataDamaged),
        ErrorSpec("DEADLINE_EXCEEDED", 504, True, DeadlineExceeded),
        ErrorSpec("UNAVAILABLE", 503, True, Unavailable),
    )
}


class Rejection(msgspec.Struct, frozen=True, gc=False):
    """A refusal as a value, for its own caller only."""

    code: str
    message: str = ""
    fields: dict[str, str | int] = {}

    def __post_init__(self) -> None:
        assert self.code in ERRORS, self.code

    def to_error(self) -> TenureError:
        """Return the exception for this refusal; an empty message becomes the default."""
        return ERRORS[self.code].exception(self.message, **self.fields)


def wire_name(field_name: str) -> str:
    """Return the camelCase name that a field has in JSON: `retry_after_ms` is `retryAfterMs`."""
    head, *tail = field_name.split("_")
    return head + "".join(part.capitalize() for part in tail)


def renamed(message: str, field: str, rename: Callable[[str], str]) -> tuple[str, str]:
    """Return a message and the field that it blames, in the words of an edge.

    ``rename`` takes one name and leaves those of the edge as they are. In the message the field
    stands at the beginning, behind a colon or behind "of"; durations are known by their ends.
    """
    path, dot, key = field.partition(".") if field.startswith(_FREE_KEYS) else (field, "", "")
    name = _NAME.sub(lambda found: rename(found[0]), path) + dot + key
    blamed = re.compile(rf"(^|: | of ){re.escape(field)}(?![\w-])")
    told = blamed.sub(lambda found: found[1] + name, message, count=1)
    return _DURATION.sub(lambda found: rename(found[0]), told), name
