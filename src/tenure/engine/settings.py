"""The settings for operators, tests and benchmarks; validated once, then immutable."""

from __future__ import annotations

import msgspec

from tenure.core import limits


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting has a unit in its name, a default, and a reason in ``core.limits``."""

    session_lease_ms: int = limits.SESSION_LEASE_MS
    poll_lease_ms: int = limits.POLL_LEASE_MS
    served_lease_ms: int = limits.SERVED_LEASE_MS
    served_tick_ms: int = limits.SERVED_TICK_MS
    served_call_ms: int = limits.SERVED_CALL_MS
    served_tick_late_ms: int = limits.SERVED_TICK_LATE_MS
    served_call_gap_ms: int = limits.SERVED_CALL_GAP_MS
    seat_stale_ms: int = limits.SEAT_STALE_MS
    seat_round_ms: int = limits.SEAT_ROUND_MS
    lease_least_ms: int = limits.LEASE_MS_MIN
    lease_most_ms: int = limits.LEASE_MS_MAX
    suspect_grace_ms: int = limits.SUSPECT_GRACE_MS
    fallback_poll_ms: int = limits.FALLBACK_POLL_MS
    news_poll_ms: int = limits.NEWS_POLL_MS
    probe_ms: int = limits.SIGHT_PROBE_MS
    judge_ms: int = limits.JUDGE_MS
    retention_ms: int = limits.RETENTION_MS
    history_kept_ms: int = limits.HISTORY_KEPT_MS
    key_kept_ms: int = limits.KEY_KEPT_MS
    offline_kept_ms: int = limits.OFFLINE_KEPT_MS
    audit_kept_ms: int = limits.AUDIT_KEPT_MS
    work_batch_max: int = limits.WORK_BATCH_MAX
    lane_queue_max: int = limits.LANE_QUEUE_MAX
    vacuum_every_tasks: int = limits.VACUUM_EVERY_TASKS
    events_kept_max: int = limits.EVENTS_KEPT_MAX
    events_reset_ms: int = limits.EVENTS_RESET_MS
    # Only the benchmark that measures the four settings below switches them off.
    direct_hand_out: bool = True
    cached_rows: bool = True
    own_vacuum: bool = True
    low_water_marks: bool = True

    def __post_init__(self) -> None:
        """Refuse values that could never work."""
        assert 0 < self.lease_least_ms <= self.lease_most_ms
        assert self.work_batch_max > 0
        assert self.lane_queue_max >= self.work_batch_max
