"""Converts stop checks for the wire."""

from __future__ import annotations

from tenure.engine.read.stop_check import StopCheck
from tenure.v1 import admin_service_pb2 as pb


def checked(found: StopCheck) -> pb.CheckStopResponse:
    """Show whether workers may be stopped."""
    return pb.CheckStopResponse(
        is_safe=found.is_safe,
        reason=found.reason,
        checked_at_ms=found.checked_at_ms,
        held_count=found.held.count,
        unconfirmed_count=found.held.unconfirmed_count,
        is_held_count_exact=found.held.is_exact,
        worker_count=found.worker_count,
        safe_count=found.safe_count,
        committed_at_ms=found.committed_at_ms or 0,
        audit_id=found.audit_id,
        oldest_held_at_ms=found.held.oldest_at_ms or 0,
        last_result_at_ms=found.last_result_at_ms or 0,
        clears_at_ms=found.clears_at_ms or 0,
        blockers=[
            pb.HeldAttempt(
                task_id=each.task_id,
                type=each.type,
                state=each.state.upper(),
                attempt=each.attempt,
                handed_at_ms=each.handed_at_ms,
            )
            for each in found.blockers
        ],
        workers=[
            pb.StopBlocker(worker_id=each.worker_id, reason=each.reason, held_count=each.held_count)
            for each in found.workers
        ],
    )
