"""Whether a worker may be stopped."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tenure.core.filter import WorkerFilter
from tenure.core.worker import record, stop_check
from tenure.core.worker.health import Health
from tenure.core.worker.record import EndReason, NewWorker, Worker, WorkerStatus
from tenure.core.worker.stop_check import HeldSum, StopReason

ONLINE = record.create(
    NewWorker("key", "mail", ("send",), software_version="1", labels={"a": "b", "c": "d"}),
    worker_id="w",
    namespace="acme/default",
    now_ms=5,
)
DRAINING = replace(ONLINE, status=WorkerStatus.DRAINING, drain_at_ms=9)
OFFLINE = replace(ONLINE, status=WorkerStatus.OFFLINE, end_reason=EndReason.EVICTED, ended_at_ms=7)


@pytest.mark.parametrize(
    ("worker", "held", "reason", "is_safe"),
    [
        (ONLINE, 0, StopReason.NOT_DRAINED, False),
        (ONLINE, 1, StopReason.NOT_DRAINED, False),
        (DRAINING, 1, StopReason.HOLDS_ATTEMPTS, False),
        (OFFLINE, 1, StopReason.HOLDS_ATTEMPTS, False),
        (DRAINING, 0, StopReason.DRAINED, True),
        (OFFLINE, 0, StopReason.OFFLINE, True),
    ],
)
def test_only_a_drained_or_ended_worker_that_holds_nothing_may_be_stopped(
    worker: Worker, held: int, reason: StopReason, is_safe: bool
) -> None:
    found = stop_check.reason(worker, HeldSum(held))
    assert (found, stop_check.is_safe(found)) == (reason, is_safe)


def test_without_workers_nothing_is_said_to_be_safe() -> None:
    assert not stop_check.is_safe(StopReason.NO_WORKER)
    assert not stop_check.is_safe(StopReason.TOO_MANY_WORKERS)


@pytest.mark.parametrize(
    ("fields", "is_taken"),
    [
        ({}, True),
        ({"queue": "mail", "version": "1", "status": WorkerStatus.ONLINE}, True),
        ({"labels": {"a": "b"}, "health": Health.LATE}, True),
        ({"queue": "other"}, False),
        ({"version": "2"}, False),
        ({"status": WorkerStatus.OFFLINE}, False),
        ({"health": Health.HEALTHY}, False),
        ({"labels": {"a": "x"}}, False),
    ],
)
def test_a_filter_takes_the_workers_that_match_all_its_fields(
    fields: dict[str, object], is_taken: bool
) -> None:
    assert WorkerFilter(**fields).takes(ONLINE, Health.LATE) is is_taken  # type: ignore[arg-type]  # fields of a filter
