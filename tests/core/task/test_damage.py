"""What follows when a stored part of a task is damaged."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tenure.core.task import damage
from tenure.core.task.damage import DamagedPart
from tenure.core.task.effect import Stop, StopCause, TellStop
from tenure.core.task.event import DamageFound
from tenure.core.task.record import NO_PROGRESS, Reason, Task, TaskState
from tenure.core.task.retry import ErrorCategory
from tests.core.task.tasks import TASK_ID, WORKER, decided, fresh, handed, running, succeeded


def damaged(task: Task, *parts: DamagedPart) -> Task:
    return replace(task, damaged=parts)


def test_a_damaged_task_fails_for_its_data_and_its_worker_is_told() -> None:
    event = DamageFound(message=damage.describe([DamagedPart.INPUT]))
    decision = decided(running(), event)
    task, error = decision.task, decision.task.progress.error
    assert (task.state, task.progress.reason) == (TaskState.FAILED, Reason.NON_RETRYABLE)
    assert error is not None
    assert (error.category, error.type) == (ErrorCategory.DATA_QUALITY, "DataDamaged")
    assert error.message == "Stored data is damaged and was not used: input."
    assert decision.effects == (TellStop(WORKER, Stop(TASK_ID, 1, StopCause.TERMINATED)),)


@pytest.mark.parametrize("task", [running(), handed(fresh())])
def test_a_live_attempt_goes_on_when_only_its_input_is_damaged(task: Task) -> None:
    assert not damage.must_fail(damaged(task, DamagedPart.INPUT))
    assert damage.must_fail(damaged(task, DamagedPart.INPUT, DamagedPart.PROGRESS))
    assert damage.must_fail(damaged(task, DamagedPart.STATE))


def test_a_task_that_waits_fails_whatever_is_damaged() -> None:
    for part in DamagedPart:
        assert damage.must_fail(damaged(fresh(), part))


def test_a_sound_task_and_one_that_has_ended_do_not_fail() -> None:
    assert not damage.must_fail(fresh())
    assert not damage.must_fail(damaged(succeeded(), DamagedPart.OUTPUT))


def test_a_result_is_lost_with_the_output_or_with_the_reason_of_a_failure() -> None:
    failed = decided(fresh(), DamageFound(message="x")).task
    assert not damage.is_result_lost(succeeded())
    assert not damage.is_result_lost(damaged(succeeded(), DamagedPart.INPUT, DamagedPart.PROGRESS))
    assert damage.is_result_lost(damaged(succeeded(), DamagedPart.OUTPUT))
    assert not damage.is_result_lost(damaged(failed, DamagedPart.INPUT))
    assert damage.is_result_lost(
        damaged(replace(failed, progress=NO_PROGRESS), DamagedPart.PROGRESS)
    )


def test_what_was_asked_for_is_lost_with_its_parts() -> None:
    assert not damage.is_request_lost(
        damaged(succeeded(), DamagedPart.OUTPUT, DamagedPart.PROGRESS)
    )
    for part in (DamagedPart.INPUT, DamagedPart.OPTIONS, DamagedPart.LABELS):
        assert damage.is_request_lost(damaged(succeeded(), part))


def test_the_refusal_names_the_parts() -> None:
    rejection = damage.refusal(damaged(succeeded(), DamagedPart.INPUT, DamagedPart.OUTPUT))
    assert rejection.code == "data_damaged"
    assert rejection.fields == {"reason": "input,output"}
    assert TASK_ID in rejection.message
