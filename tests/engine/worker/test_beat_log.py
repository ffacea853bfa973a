"""The heartbeats that a server remembers."""

from __future__ import annotations

import pytest

from tenure.core.worker.lease import Beat, Lease
from tenure.engine.worker import beat_log as module
from tenure.engine.worker.beat_log import BeatLog, PastBeat
from tenure.engine.worker.command import Heartbeat, Renewed
from tenure.errors import WorkerInactive

START_MS = 1_700_000_000_000


def beat(log: BeatLog, worker_id: str, at_ms: int, total: int, lag_ms: int = 0) -> None:
    command = Heartbeat(
        namespace="acme/default",
        worker_id=worker_id,
        beat=Beat(token=1, server_id="s", active_count=3, loop_lag_ms=lag_ms),
    )
    lease = Lease(worker_id, "acme/default", "s", 0, 1, total_completed=total - 1, total_failed=1)
    log.note([command], [Renewed(lease)], START_MS + at_ms)


def test_the_last_heartbeats_are_kept_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEATS_KEPT", 3)
    log = BeatLog()
    for number in range(5):
        beat(log, "w", number * 5_000, 10 + number, lag_ms=number * 40_000)
    assert log.of("w") == [
        PastBeat(START_MS + 10_000, 12, 3, 65_535),
        PastBeat(START_MS + 15_000, 13, 3, 65_535),
        PastBeat(START_MS + 20_000, 14, 3, 65_535),
    ]
    assert log.of("nobody") == []


def test_what_ended_in_the_last_minute_and_the_last_result_come_from_heartbeats() -> None:
    log = BeatLog()
    assert log.per_minute("w", START_MS) is None
    assert log.last_result_at_ms("w") is None
    for at_ms, total in ((0, 10), (30_000, 14), (60_000, 20), (90_000, 20)):
        beat(log, "w", at_ms, total)
    assert log.per_minute("w", START_MS + 30_000) == 10
    assert log.per_minute("w", START_MS + 90_000) == 6
    assert log.last_result_at_ms("w") == START_MS + 60_000
    # A clock that was set back, and a worker that counts anew, change nothing that is sent on.
    beat(log, "w", -5_000, 1)
    assert log.of("w")[-1] == PastBeat(START_MS, 10, 3, 0)


def test_refused_heartbeats_and_workers_beyond_the_limit_are_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "BEATS_WORKERS_MAX", 2)
    log = BeatLog()
    for worker_id in ("a", "b", "c"):
        beat(log, worker_id, 0, 1)
    assert [bool(log.of(each)) for each in "abc"] == [False, True, True]
    command = Heartbeat(namespace="acme/default", worker_id="d", beat=Beat(token=1, server_id="s"))
    log.note([command], [WorkerInactive("gone", reason="evicted")], START_MS)
    assert log.of("d") == []
