"""What a worker remembers for its heartbeats: token, totals, deltas and its own fence."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tenure.core.worker.lease import Beat, Lease
from tenure.engine.command import TaskRef
from tenure.engine.worker import command as c
from tests.sim.request_log import HeartbeatCall

FENCE_MARGIN_MS = 150
Counts = tuple[int, int, int]
"""(token, completed, failed): the deltas that a heartbeat with this token says."""


class HeartbeatState:
    """The chain of heartbeats of one incarnation; one is in flight at a time."""

    def __init__(self, *, uses_deltas: bool, drift: float) -> None:
        self._uses_deltas = uses_deltas
        self.drift = drift
        self._token = 0
        self._unsure: Counts | None = None
        self._told = (0, 0)
        self.is_full = False
        self.interval_ms = 500
        self.fence_at_ms = 0.0
        self.unbound: list[TaskRef] = []
        self.completed = self.failed = 0

    def begin(self, registration: c.Registration, sent_at_ms: float) -> None:
        """Start the chain of a new incarnation."""
        self._token = registration.lease.token
        self._unsure = None
        self._told = (0, 0)
        # A repeated registration may meet the token that an earlier one left.
        self.is_full = True
        self.interval_ms = registration.interval_ms
        self.unbound = []
        self.completed = self.failed = 0
        self._renew(registration.lease, sent_at_ms)

    def _renew(self, lease: Lease, sent_at_ms: float) -> None:
        self.fence_at_ms = sent_at_ms + (lease.lease_ms - FENCE_MARGIN_MS) / self.drift

    def extend(self, sent_at_ms: float, lease_ms: int) -> None:
        """Restart the own clock of a served worker: it never goes back."""
        fence_at_ms = sent_at_ms + (lease_ms - FENCE_MARGIN_MS) / self.drift
        self.fence_at_ms = max(self.fence_at_ms, fence_at_ms)

    def request(
        self, namespace: str, worker_id: str, *, held: Collection[TaskRef], fresh: Iterable[TaskRef]
    ) -> tuple[HeartbeatCall, Counts]:
        """Return what to send: deltas (`fresh` is newly bound), or all that is held."""
        unsaid = (self.completed - self._told[0], self.failed - self._told[1])
        if self._unsure is not None and self._unsure[0] == self._token:
            # All heartbeats with one token say the same, because one of them may have counted.
            unsaid = self._unsure[1:]
        deltas = self._uses_deltas
        beat = Beat(
            token=self._token,
            server_id="",
            total_completed=-1 if deltas else self.completed,
            total_failed=-1 if deltas else self.failed,
            completed_delta=unsaid[0] if deltas else 0,
            failed_delta=unsaid[1] if deltas else 0,
            active_count=len(held),
        )
        call = HeartbeatCall(
            namespace=namespace,
            worker_id=worker_id,
            beat=beat,
            bound=() if self.is_full else tuple(fresh),
            unbound=() if self.is_full else tuple(self.unbound),
            held=tuple(held) if self.is_full else None,
        )
        return call, (self._token, *unsaid)

    def _count(self, counts: Counts) -> None:
        self._told = (self._told[0] + counts[1], self._told[1] + counts[2])
        self._unsure = None

    def accepted(
        self, call: HeartbeatCall, counts: Counts, lease: Lease, sent_at_ms: float
    ) -> None:
        """Take the new token."""
        self._token = lease.token
        self._count(counts)
        said = set(call.unbound)
        self.unbound = [ref for ref in self.unbound if ref not in said]
        if call.held is not None:
            self.is_full = False
        self._renew(lease, sent_at_ms)

    def mismatched(self, token: int, counts: Counts) -> None:
        """Take the current token; if it is newer, one heartbeat with ours was accepted."""
        if token > counts[0]:
            self._count(counts)
        self._unsure = None
        self._token, self.is_full = token, True

    def unanswered(self, counts: Counts) -> None:
        """Remember what may or may not have counted."""
        self._unsure = counts
