"""The error tree and its table say the same, and it is what the design promises."""

import copy

import pytest

from tenure import errors
from tenure.errors import ERRORS, Rejection, TenureError, wire_name

# design.md, section 6: code -> gRPC status, HTTP status, fields on the wire.
PROMISED: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "worker_inactive": ("FAILED_PRECONDITION", 410, ("reason",)),
    "token_mismatch": ("ABORTED", 409, ("currentToken",)),
    "worker_draining": ("FAILED_PRECONDITION", 409, ()),
    "attempt_mismatch": ("FAILED_PRECONDITION", 409, ("expectedAttempt", "receivedAttempt")),
    "task_already_terminal": ("FAILED_PRECONDITION", 409, ("state",)),
    "task_expired": ("FAILED_PRECONDITION", 410, ()),
    "invalid_token": ("UNAUTHENTICATED", 401, ()),
    "unauthenticated": ("UNAUTHENTICATED", 401, ()),
    "permission_denied": ("PERMISSION_DENIED", 403, ()),
    "wrong_state": ("FAILED_PRECONDITION", 409, ("state",)),
    "journal_mismatch": ("FAILED_PRECONDITION", 409, ("expected", "received", "position")),
    "journal_full": ("RESOURCE_EXHAUSTED", 413, ("limit",)),
    "out_of_order": ("ABORTED", 409, ("expectedNo",)),
    "too_early": ("FAILED_PRECONDITION", 409, ("retryAfterMs",)),
    "not_found": ("NOT_FOUND", 404, ()),
    "idempotency_conflict": ("ALREADY_EXISTS", 409, ("taskId", "field")),
    "already_exists": ("ALREADY_EXISTS", 409, ()),
    "unimplemented": ("UNIMPLEMENTED", 501, ()),
    "invalid_argument": ("INVALID_ARGUMENT", 400, ("field",)),
    "payload_too_large": ("RESOURCE_EXHAUSTED", 413, ("limit",)),
    "rate_limited": ("RESOURCE_EXHAUSTED", 429, ("retryAfterMs",)),
    "unsupported_media_type": ("INVALID_ARGUMENT", 415, ()),
    "data_damaged": ("DATA_LOSS", 409, ("reason",)),
    "deadline_exceeded": ("DEADLINE_EXCEEDED", 504, ()),
    "unavailable": ("UNAVAILABLE", 503, ("reason", "retryAfterMs")),
}


def test_the_table_is_what_the_design_promises() -> None:
    found = {
        code: (
            spec.grpc_status,
            spec.http_status,
            tuple(wire_name(name) for name in spec.exception.field_names),
        )
        for code, spec in ERRORS.items()
    }
    assert found == PROMISED


def test_every_class_of_the_tree_is_in_the_table_once_and_public() -> None:
    tree = TenureError.__subclasses__()
    tree = [cls for cls in tree if cls.__module__ == errors.__name__]
    assert sorted(cls.code for cls in tree) == sorted(ERRORS)
    assert all(ERRORS[cls.code].exception is cls for cls in tree)
    assert {cls.__name__ for cls in tree} < set(errors.__all__)


def test_only_errors_that_time_can_heal_are_retryable() -> None:
    retryable = {code for code, spec in ERRORS.items() if spec.is_retryable}
    assert retryable == {"rate_limited", "deadline_exceeded", "unavailable"}


@pytest.mark.parametrize("code", ERRORS)
def test_every_error_has_a_default_message_of_its_own(code: str) -> None:
    error = ERRORS[code].exception()
    assert error.message
    assert error.message == str(error)
    assert "\n" not in error.message
    assert [spec.exception().message for spec in ERRORS.values()].count(error.message) == 1


def test_an_error_keeps_its_message_and_fields_also_when_copied() -> None:
    error = errors.AttemptMismatch("too late", expected_attempt=3, received_attempt=2)
    assert (error.message, error.code) == ("too late", "attempt_mismatch")
    assert error.fields == {"expected_attempt": 3, "received_attempt": 2}
    assert copy.copy(error).fields == error.fields


@pytest.mark.parametrize("code", ERRORS)
def test_a_rejection_becomes_the_error_of_its_code(code: str) -> None:
    fields: dict[str, str | int] = dict.fromkeys(ERRORS[code].exception.field_names, 7)
    error = Rejection(code, "because", fields).to_error()
    assert type(error) is ERRORS[code].exception
    assert Rejection(error.code, error.message, error.fields) == Rejection(code, "because", fields)


def test_a_rejection_without_message_takes_the_default() -> None:
    assert Rejection("not_found").to_error().message == errors.NotFound().message


def test_a_rejection_with_an_unknown_code_cannot_exist() -> None:
    with pytest.raises(AssertionError):
        Rejection("no_such_code")


@pytest.mark.parametrize(
    ("field_name", "expected"),
    [("state", "state"), ("retry_after_ms", "retryAfterMs"), ("task_id", "taskId")],
)
def test_wire_names_are_camel_case(field_name: str, expected: str) -> None:
    assert wire_name(field_name) == expected


def shouted(name: str) -> str:
    """Rename as an edge would do it."""
    return name.upper()


@pytest.mark.parametrize(
    ("field", "message", "name", "told"),
    [
        ("taskId", "taskId must be good", "TASKID", "TASKID must be good"),
        ("error.message", "error.message must be", "ERROR.MESSAGE", "ERROR.MESSAGE must be"),
        ("tasks[2].queue", "tasks[2].queue must be", "TASKS[2].QUEUE", "TASKS[2].QUEUE must be"),
        ("labels.a_ms", "labels.a_ms must be short", "LABELS.a_ms", "LABELS.a_ms must be short"),
        ("types, pid", "What differs: types, pid.", "TYPES, PID", "What differs: TYPES, PID."),
        ("queue", "with another value of queue.", "QUEUE", "with another value of QUEUE."),
        ("aMs", "Give aMs or bMs, not types.", "AMS", "Give AMS or BMS, not types."),
        ("name", "The name of names must be good", "NAME", "The name of names must be good"),
    ],
)
def test_a_field_is_renamed_where_a_message_blames_it(
    field: str, message: str, name: str, told: str
) -> None:
    assert errors.renamed(message, field, shouted) == (told, name)
