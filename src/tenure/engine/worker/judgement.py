"""The judgement of one ended lease, by a server that checks again whether it gets heartbeats."""

from __future__ import annotations

from tenure.core.worker import judge_readiness as readiness_rules
from tenure.core.worker.judge import judge
from tenure.core.worker.record import EndReason, Worker
from tenure.engine.task.command import ProcessDue
from tenure.engine.worker import command as c
from tenure.store.table.lease import Lapsed, LeaseRows


def reason_to_end(
    command: c.JudgeLeases, leases: LeaseRows, lapsed: Lapsed, worker: Worker
) -> EndReason | None:
    """Return why a worker is to be taken offline, as it was when the leases were scanned.

    A worker that opens a session in this same batch is not judged.
    """
    if worker.id in leases.wanted:
        return None
    now_ms = leases.scanned_at_ms
    sighted_ms = still_sighted_ms(command, mono_ms=leases.began_at_mono_ms, now_ms=now_ms)
    return judge(
        lapsed.lease,
        mode=worker.mode,
        now_ms=now_ms,
        sighted_ms=sighted_ms,
        server=leases.stale_server(lapsed),
        suspect_grace_ms=command.suspect_grace_ms,
    )


def still_sighted_ms(command: c.JudgeLeases | ProcessDue, *, mono_ms: int, now_ms: int) -> int:
    """Return for how long this server can judge: that was measured before the batch began."""
    if command.judge_readiness is None:
        return command.sighted_ms
    still_ms = readiness_rules.still_sighted_ms(
        command.judge_readiness, mono_ms=mono_ms, store_now_ms=now_ms
    )
    return min(command.sighted_ms, still_ms)
