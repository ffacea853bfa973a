"""An outage of the store in the log: when it goes and when it is back, and nothing in between."""

from __future__ import annotations

import pytest
import structlog

from tenure.engine.acceptance import Acceptance
from tenure.engine.store_outage import StoreOutage
from tenure.errors import NotFound, Unavailable
from tenure.store.failure import Conflict, Lost
from tenure.testing.clock import ManualClock
from tests.engine.world import Clock


@pytest.fixture
def clock() -> Clock:
    """Return a clock that the test moves."""
    return Clock()


def unavailable() -> Unavailable:
    """Return what a caller is told during an outage."""
    return Unavailable("No store.", reason="store_unreachable", retry_after_ms=1)


def later(outage: StoreOutage, clock: ManualClock, ms: int) -> None:
    """Let time pass until the next commit of a heartbeat."""
    clock.advance(ms)
    outage.committed()


def test_one_line_when_it_goes_and_one_when_it_is_back(clock: Clock) -> None:
    outage = StoreOutage(clock, Acceptance())
    with structlog.testing.capture_logs() as lines:
        for _ in range(10):
            assert outage.failed(Lost("PostgreSQL: ConnectionRefusedError"))
            assert outage.refused(unavailable())
            clock.advance(500)
        outage.committed()
        later(outage, clock, 499)
        later(outage, clock, 1)
        later(outage, clock, 5_000)
    assert lines == [
        {
            "event": "store.unavailable",
            "log_level": "warning",
            "reason": "store_unreachable",
            "error": "PostgreSQL: ConnectionRefusedError",
        },
        {
            "event": "store.available",
            "log_level": "warning",
            "outage_ms": 5_000,
            "failure_count": 10,
            "refused_count": 10,
        },
    ]


def test_the_line_says_what_the_store_said(clock: Clock) -> None:
    error = unavailable()
    error.__cause__ = Lost("PostgreSQL: ConnectionRefusedError")
    lost = Lost("PostgreSQL: OSError")
    lost.__cause__ = OSError("secret")
    for each, expected in ((error, "PostgreSQL: ConnectionRefusedError"), (lost, str(lost))):
        with structlog.testing.capture_logs() as lines:
            StoreOutage(clock, Acceptance()).refused(each)
        assert lines[0]["error"] == expected


def test_connections_that_come_back_one_by_one_are_one_outage(clock: Clock) -> None:
    outage = StoreOutage(clock, Acceptance())
    with structlog.testing.capture_logs() as lines:
        outage.failed(Lost("gone"))
        for _ in range(5):
            later(outage, clock, 700)
            outage.failed(Lost("still gone"))
        later(outage, clock, 200)
        later(outage, clock, 800)
    assert [line["event"] for line in lines] == ["store.unavailable", "store.available"]
    assert lines[-1]["outage_ms"] == 3_700
    assert lines[-1]["failure_count"] == 6


def test_a_second_outage_is_counted_anew(clock: Clock) -> None:
    outage = StoreOutage(clock, Acceptance())
    with structlog.testing.capture_logs() as lines:
        for count in (3, 1):
            for _ in range(count):
                outage.failed(Lost("gone"))
            later(outage, clock, 1_000)
    assert [line.get("failure_count") for line in lines] == [None, 3, None, 1]


def test_a_full_disk_is_over_when_tasks_can_be_stored_again(clock: Clock) -> None:
    acceptance = Acceptance()
    outage = StoreOutage(clock, acceptance)
    with structlog.testing.capture_logs() as lines:
        lost = Lost("The disk is full.", reason="storage_full")
        acceptance.lost(lost.reason)
        outage.failed(lost)
        later(outage, clock, 60_000)
        assert len(lines) == 1
        acceptance.found_space()
        later(outage, clock, 1_000)
    assert lines[-1]["event"] == "store.available"


@pytest.mark.parametrize(
    "error",
    [
        Conflict("busy"),
        Lost("The read took too long.", reason="read_timeout"),
        Lost("The server is shutting down.", reason="shutting_down"),
        NotFound("There is no such task."),
        AssertionError("a mistake of ours"),
    ],
)
def test_what_is_no_outage_is_left_to_who_met_it(clock: Clock, error: Exception) -> None:
    outage = StoreOutage(clock, Acceptance())
    with structlog.testing.capture_logs() as lines:
        assert not outage.failed(error)
        assert not outage.refused(error)
    assert not lines
