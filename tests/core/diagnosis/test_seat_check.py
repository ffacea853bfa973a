"""What the doctor says of calls to served workers."""

from __future__ import annotations

from tenure.core.diagnosis.finding import Level
from tenure.core.diagnosis.worker_check import SeatTrouble, check_seats


def trouble(*, failures: int = 0, is_driven: bool = True, error: str = "") -> SeatTrouble:
    return SeatTrouble("w-1", "acme/default", "", "127.0.0.1:7310", failures, error, is_driven)


def test_nothing_is_wrong_while_calls_are_answered() -> None:
    (finding,) = check_seats([])
    assert finding.level is Level.OK


def test_a_worker_with_failing_calls_is_named_with_its_error() -> None:
    (finding,) = check_seats([trouble(failures=2, error="UNAVAILABLE")])
    assert finding.level is Level.WARNING
    assert "w-1" in finding.message
    assert "UNAVAILABLE" in finding.message
    assert "no answer" in check_seats([trouble(failures=1)])[0].message


def test_a_seat_without_a_live_server_is_a_problem() -> None:
    (finding,) = check_seats([trouble(is_driven=False)])
    assert finding.level is Level.PROBLEM
