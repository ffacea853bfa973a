"""Failures on their way from the worker to the caller."""

from __future__ import annotations

import pytest

from tenure.core.task.record import Reason
from tenure.core.task.retry import ErrorCategory
from tenure.sdk import failure
from tenure.sdk.failure import ApplicationError, RemoteError, TaskFailed
from tenure.sdk.payload import Converter, PayloadError
from tenure.v1 import task_pb2, task_service_pb2

CONVERTER = Converter()


def raised(error: BaseException) -> BaseException:
    def fail() -> None:
        try:
            _ = dict[str, int]()["the first cause"]
        except KeyError as cause:
            raise error from cause

    with pytest.raises(type(error)) as caught:
        fail()
    return caught.value


def received(error: task_pb2.TaskError, reason: str = "NON_RETRYABLE") -> TaskFailed:
    result = task_service_pb2.TaskResult(
        task_id="t", state=task_pb2.TASK_STATE_FAILED, failure_reason=reason, attempt=3, error=error
    )
    return failure.from_result(result, CONVERTER)


def test_a_caller_reads_type_message_category_causes_and_trace() -> None:
    wire = failure.to_wire(raised(ValueError("no such card")), CONVERTER)
    caught = received(wire)
    cause = caught.error
    assert isinstance(cause, RemoteError)
    assert (cause.type, cause.message) == ("ValueError", "no such card")
    assert cause.category is ErrorCategory.USER_CODE
    assert "the first cause" in cause.stack_trace
    assert "test_failure.py" in cause.stack_trace
    assert any("the first cause" in note for note in cause.__notes__)
    assert caught.attempt == 3


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError("x"), "KeyError: 'x'"),
        (ValueError("no such card"), "ValueError: no such card"),
        (ApplicationError("the card is blocked", type="CardBlocked"), "CardBlocked: the card"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_a_failed_task_names_type_and_message_of_its_failure(error: Exception, said: str) -> None:
    text = str(received(failure.to_wire(raised(error), CONVERTER)))
    assert f"Task t failed and is not retried: {said}" in text
    assert text.count(type(error).__name__) <= 1


def test_a_timeout_is_said_once_by_its_python_name() -> None:
    late = task_pb2.TaskError(message="The attempt took longer than its start-to-close timeout.")
    text = str(received(late, "START_TO_CLOSE"))
    assert text == "Task t took longer than start_to_close in its last attempt"
    # Here the timeout is what happened in the last attempt, and not the reason.
    assert late.message in str(received(late, "RETRIES_EXHAUSTED"))


def test_an_application_error_says_how_it_is_to_be_taken() -> None:
    error = ApplicationError(
        "slow down",
        {"limit": 10},
        type="RateLimit",
        next_retry_delay="90s",
        category=ErrorCategory.INFRASTRUCTURE,
    )
    wire = failure.to_wire(raised(error), CONVERTER)
    assert wire.next_retry_delay_ms == 90_000
    assert not wire.HasField("retryable")
    cause = received(wire).error
    assert cause is not None
    assert cause.type == "RateLimit"
    assert cause.category is ErrorCategory.INFRASTRUCTURE
    assert cause.details(dict[str, int]) == ({"limit": 10},)
    final = failure.to_wire(ApplicationError("no", non_retryable=True), CONVERTER)
    assert final.HasField("retryable")
    assert not final.retryable


def test_every_reason_has_its_exception() -> None:
    for reason in Reason:
        caught = received(task_pb2.TaskError(message="m"), reason)
        assert caught.reason == reason
        assert "t " in str(caught)
    assert {type(received(task_pb2.TaskError(), each)) for each in Reason} == {
        failure.TaskFailed,
        failure.TaskTimedOut,
        failure.CancelTimedOut,
        failure.TaskPoisoned,
        failure.WorkersLost,
        failure.TaskTerminated,
    }


def test_a_cancelled_task_says_why() -> None:
    result = task_service_pb2.TaskResult(
        task_id="t", state=task_pb2.TASK_STATE_CANCELLED, cancel_reason="not needed"
    )
    caught = failure.from_result(result, CONVERTER)
    assert isinstance(caught, failure.TaskCancelled)
    assert "not needed" in str(caught)
    assert caught.error is None


def test_the_timeout_of_a_run_has_the_name_that_it_has_for_users() -> None:
    result = task_service_pb2.TaskResult(
        task_id="t", state=task_pb2.TASK_STATE_FAILED, failure_reason=Reason.SCHEDULE_TO_CLOSE
    )
    caught = failure.from_result(result, CONVERTER, noun=failure.RUN)
    assert isinstance(caught, failure.TaskTimedOut)
    assert str(caught) == "Run t did not end within its timeout"


def test_a_name_from_the_wire_is_text_and_nothing_else() -> None:
    cause = received(task_pb2.TaskError(message="m", type="os.system")).error
    assert type(cause) is RemoteError
    with pytest.raises(PayloadError, match="no details"):
        cause.details(int)
    assert cause.details() == ()


def test_a_group_of_failures_says_what_they_are() -> None:
    inner = ExceptionGroup("later", [KeyError("x")])
    group = ExceptionGroup("unhandled errors", [ValueError("no"), inner, TypeError()])
    wire = failure.to_wire(group, CONVERTER)
    assert wire.message == (
        "unhandled errors (3 sub-exceptions): ValueError: no; ExceptionGroup: later "
        "(1 sub-exception): KeyError: 'x'; TypeError"
    )
    many = failure.to_wire(ExceptionGroup("e", [OSError(f"{n}") for n in range(9)]), CONVERTER)
    assert many.message == "e (9 sub-exceptions): OSError: 0; OSError: 1; OSError: 2; …"


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def test_an_exception_that_cannot_be_shown_is_still_reported() -> None:
    wire = failure.to_wire(raised(UnspeakableError()), CONVERTER)
    assert wire.type == "UnspeakableError"
    assert "cannot be shown" in wire.message
    lone = failure.to_wire(ValueError("\ud800 \0 " + "x" * 100_000), CONVERTER)
    assert len(lone.message.encode()) <= 16 * 1024
    odd = failure.to_wire(ApplicationError("m", object()), CONVERTER)
    assert b"cannot be shown" in odd.details


@pytest.mark.parametrize("bad", [{"next_retry_delay": "soon"}, {"category": "MINE"}])
def test_a_wrong_wish_is_refused_where_it_is_made(bad: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"duration|MINE"):
        ApplicationError("m", **bad)  # type: ignore[arg-type]
