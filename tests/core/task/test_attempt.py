"""Attempts: what each end costs, and what no record can be."""

from typing import Any

import pytest

from tenure.core.task.attempt import CHARGES, EXPIRED, Attempt, Charge, Outcome

RECORD: dict[str, Any] = {
    "namespace": "acme/default",
    "task_id": "0190a000-0000-7000-8000-000000000001",
    "number": 1,
    "outcome": Outcome.RELEASED,
    "worker_id": None,
    "handed_at_ms": 0,
    "ended_at_ms": 0,
    "state_after": "pending",
}


def test_every_outcome_has_its_price() -> None:
    charged = {outcome for outcome in Outcome if CHARGES[outcome] is Charge.RETRY_POLICY}
    assert charged == {Outcome.FAILED, Outcome.TIMED_OUT}
    charged = {outcome for outcome in Outcome if CHARGES[outcome] is Charge.INTERRUPTIONS}
    assert charged == {Outcome.WORKER_LOST, Outcome.LOST_TASK}


def test_what_timed_out_or_was_lost_has_expired() -> None:
    assert {Outcome.TIMED_OUT, Outcome.WORKER_LOST, Outcome.LOST_TASK} == EXPIRED


def test_the_first_attempt_is_number_one() -> None:
    assert Attempt(**RECORD).error is None


@pytest.mark.parametrize("changes", [{"number": 0}, {"ended_at_ms": -1}])
def test_no_impossible_record_can_exist(changes: dict[str, int]) -> None:
    with pytest.raises(AssertionError):
        Attempt(**{**RECORD, **changes})
