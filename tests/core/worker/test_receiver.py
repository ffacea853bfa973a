"""Who can be given an attempt."""

from __future__ import annotations

from tenure.core.worker.lease import late_since_ms
from tenure.core.worker.receiver import Receiver
from tenure.core.worker.record import Worker

LEASE_MS = 15_000
NOW = 1_000_000
WORKER = Worker("worker-1", "acme/default", "default", ("mail",), "instance-1", NOW)


def test_a_receiver_with_a_lease_is_late_when_it_misses_a_heartbeat() -> None:
    since_ms = late_since_ms(lease_ms=LEASE_MS, now_ms=NOW)
    assert Receiver(WORKER, None, since_ms, LEASE_MS, NOW).is_late(NOW)
    assert not Receiver(WORKER, None, since_ms + 1, LEASE_MS, NOW).is_late(NOW)


def test_a_receiver_without_a_lease_is_never_late() -> None:
    assert not Receiver(WORKER, None, None, None, NOW).is_late(NOW)
    assert not Receiver(WORKER, None, 0, None, NOW).is_late(NOW)
