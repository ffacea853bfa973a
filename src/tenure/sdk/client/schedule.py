"""What a schedule says: when it fires, and what happens if it is late or overlaps."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, Literal, get_args

import msgspec

from tenure.core.limits import INSTANT_MS_MAX
from tenure.sdk.duration import Duration, delay_ms, duration_ms
from tenure.sdk.instant import datetime_of, timedelta_of
from tenure.v1 import schedule_service_pb2 as pb

Overlap = Literal["allow", "skip", "buffer_one", "cancel_previous"]
_MAX_CATCHUP: Final = 100


class _Rule(msgspec.Struct, frozen=True):
    rule: str = ""


class Schedule(_Rule, frozen=True, kw_only=True):
    """When something starts: a cron rule, or an interval.

    >>> nightly = Schedule("0 2 * * *", zone="Europe/Berlin", overlap="skip")
    >>> often = Schedule(every="5m", max_catchup=1)

    ``zone`` is UTC or an IANA name; ``offset`` moves an interval, which is aligned to 1970.
    ``overlap`` says what happens if the task of the last fire has not ended. Of the instants that
    were missed the newest ``max_catchup`` fire, unless they are older than ``catchup_window``.
    ``jitter`` delays each task by up to so much. After so many failures in a row,
    ``pause_after_failures``, the schedule is paused; 0 is never.
    """

    every: Duration | None = None
    offset: Duration = 0
    zone: str = "UTC"
    overlap: Overlap = "allow"
    max_catchup: int = _MAX_CATCHUP
    catchup_window: Duration | None = None
    jitter: Duration = 0
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    pause_after_failures: int = 0
    note: str = ""

    def __post_init__(self) -> None:
        """Refuse what the server would refuse in any case."""
        if bool(self.rule) == (self.every is not None):
            raise ValueError('a schedule needs a rule, such as "0 2 * * *", or every="5m"')
        if self.overlap not in get_args(Overlap):
            known = ", ".join(get_args(Overlap))
            raise ValueError(f"overlap must be one of {known}, not {self.overlap!r}")
        to_wire(self)


def rule_to_wire(schedule: Schedule) -> pb.ScheduleRule:
    """Return when it fires, as the protocol has it."""
    return pb.ScheduleRule(
        rule=schedule.rule,
        every_ms=0 if schedule.every is None else duration_ms(schedule.every, "every"),
        offset_ms=delay_ms(schedule.offset, "offset"),
        zone=schedule.zone,
        starts_at_ms=_instant_ms(schedule.starts_at, "starts_at"),
        ends_at_ms=_instant_ms(schedule.ends_at, "ends_at"),
    )


def to_wire(schedule: Schedule) -> pb.ScheduleSpec:
    """Return everything but what is started."""
    window = schedule.catchup_window
    return pb.ScheduleSpec(
        when=rule_to_wire(schedule),
        overlap=schedule.overlap.upper(),
        max_catchup=schedule.max_catchup,
        catchup_window_ms=None if window is None else duration_ms(window, "catchup_window"),
        jitter_ms=delay_ms(schedule.jitter, "jitter"),
        pause_after_failures=schedule.pause_after_failures,
        note=schedule.note,
    )


def from_wire(spec: pb.ScheduleSpec) -> Schedule:
    """Return what a stored schedule says; durations are ``timedelta``."""
    when = spec.when
    has_window = spec.HasField("catchup_window_ms")
    overlap: Overlap = spec.overlap.lower()  # type: ignore[assignment]  # the server's own words
    return Schedule(
        when.rule,
        every=timedelta_of(when.every_ms),
        offset=timedelta_of(when.offset_ms) or 0,
        zone=when.zone,
        overlap=overlap,
        max_catchup=spec.max_catchup,
        catchup_window=timedelta(milliseconds=spec.catchup_window_ms) if has_window else None,
        jitter=timedelta_of(spec.jitter_ms) or 0,
        starts_at=datetime_of(when.starts_at_ms),
        ends_at=datetime_of(when.ends_at_ms),
        pause_after_failures=spec.pause_after_failures,
        note=spec.note,
    )


def _instant_ms(given: datetime | None, name: str) -> int:
    return 0 if given is None else instant_ms(given, name)


def instant_ms(given: datetime, name: str) -> int:
    """Return an instant in milliseconds; a ``ValueError`` names the parameter."""
    if given.tzinfo is None:
        raise ValueError(f"{name} needs a time zone, such as datetime(2030, 1, 31, tzinfo=UTC)")
    at_ms = round(given.timestamp() * 1_000)
    if not 0 < at_ms <= INSTANT_MS_MAX:
        raise ValueError(f"{name} must be between the years 1970 and 9999")
    return at_ms
