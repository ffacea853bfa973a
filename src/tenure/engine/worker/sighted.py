"""For how long a server can judge, looked at again in the batch that judges."""

from __future__ import annotations

from tenure.core.worker import judge_readiness as readiness_rules
from tenure.engine.task.command import ProcessDue
from tenure.engine.worker import command as c


def still_sighted_ms(
    command: c.JudgeLeases | ProcessDue,
    *,
    mono_ms: int,
    now_ms: int,
) -> int:
    """Return for how long this server can judge: that was measured before the batch began."""
    if command.judge_readiness is None:
        return command.sighted_ms
    still_ms = readiness_rules.still_sighted_ms(
        command.judge_readiness, mono_ms=mono_ms, store_now_ms=now_ms
    )
    return min(command.sighted_ms, still_ms)
