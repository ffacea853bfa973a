"""A server may judge only after it could receive heartbeats for long enough.

A server is sighted while its heartbeat lane commits at least each second, its loop does not
stall, and the store's time and its own monotonic clock advance alike.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from tenure.core.limits import SIGHT_STALL_MS


class JudgeReadiness(msgspec.Struct, frozen=True, gc=False):
    """When a server could receive heartbeats. Monotonic instants are those of its own clock."""

    sighted_since_mono_ms: int
    committed_at_mono_ms: int
    store_now_ms: int


def begin(*, mono_ms: int, store_now_ms: int) -> JudgeReadiness:
    """Return the state at the start: only the server that starts is not sighted."""
    return JudgeReadiness(mono_ms, mono_ms, store_now_ms)


def commit(judge_readiness: JudgeReadiness, *, mono_ms: int, store_now_ms: int) -> JudgeReadiness:
    """Note that the heartbeat lane committed at these two instants."""
    elapsed_ms = mono_ms - judge_readiness.committed_at_mono_ms
    drift_ms = abs((store_now_ms - judge_readiness.store_now_ms) - elapsed_ms)
    is_sighted = elapsed_ms <= SIGHT_STALL_MS and drift_ms <= SIGHT_STALL_MS
    return JudgeReadiness(
        sighted_since_mono_ms=judge_readiness.sighted_since_mono_ms if is_sighted else mono_ms,
        committed_at_mono_ms=mono_ms,
        store_now_ms=store_now_ms,
    )


def stall(judge_readiness: JudgeReadiness, *, mono_ms: int) -> JudgeReadiness:
    """Note that the loop stalled for over a second and runs again."""
    return replace(judge_readiness, sighted_since_mono_ms=mono_ms)


def still_sighted_ms(judge_readiness: JudgeReadiness, *, mono_ms: int, store_now_ms: int) -> int:
    """Return for how long the server has been sighted at an instant of the store.

    The store's clock may have jumped, or the loop stalled, after the last commit of a heartbeat.
    """
    return sighted_ms(
        commit(judge_readiness, mono_ms=mono_ms, store_now_ms=store_now_ms), mono_ms=mono_ms
    )


def sighted_ms(judge_readiness: JudgeReadiness, *, mono_ms: int) -> int:
    """Return for how long the server has been sighted; 0 while it is not."""
    if mono_ms - judge_readiness.committed_at_mono_ms > SIGHT_STALL_MS:
        return 0
    return mono_ms - judge_readiness.sighted_since_mono_ms
