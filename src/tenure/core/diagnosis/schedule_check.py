"""Checks of the schedules of namespaces: late ones, broken ones, those whose tasks always fail."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tenure.core.diagnosis.finding import Finding, Level, ok
from tenure.core.duration import duration_text
from tenure.core.explain.fact import counted
from tenure.core.limits import FINDINGS_MAX


class LateSchedules(msgspec.Struct, frozen=True, gc=False):
    """How many schedules of a namespace nobody looks at, since when, and one of them."""

    namespace: str
    count: int
    due_at_ms: int
    schedule_id: str


class BrokenSchedule(msgspec.Struct, frozen=True, gc=False):
    """A schedule that cannot fire, and why."""

    namespace: str
    schedule_id: str
    error: str


class FailingSchedule(msgspec.Struct, frozen=True, gc=False):
    """A schedule whose last tasks have failed, and how many."""

    namespace: str
    schedule_id: str
    failure_count: int


def check_late(late: Sequence[LateSchedules], *, now_ms: int) -> list[Finding]:
    """Report schedules that are due for long, by namespace."""
    worst = sorted(late, key=lambda each: (each.due_at_ms, each.namespace))
    return [_late(each, now_ms) for each in worst[:FINDINGS_MAX]] or [
        ok("late_schedules", "Schedules fire in time.")
    ]


def _late(found: LateSchedules, now_ms: int) -> Finding:
    age = duration_text(now_ms - found.due_at_ms)
    are = "is" if found.count == 1 else "are"
    return Finding(
        "late_schedules",
        Level.PROBLEM,
        f"{counted(found.count, 'schedule')} in {found.namespace} {are} late, the first by {age}",
        "Look for service.failed and schedule.refused in the logs of the servers, and at "
        "tenure_schedule_lateness_seconds. More fires per round: --scheduler-fires.",
        {"namespace": found.namespace, "count": str(found.count), "schedule": found.schedule_id},
    )


def check_broken(broken: Sequence[BrokenSchedule]) -> list[Finding]:
    """Report schedules that cannot fire."""
    return [_broken(each) for each in broken[:FINDINGS_MAX]] or [
        ok("broken_schedules", "No schedule is broken.")
    ]


def _broken(found: BrokenSchedule) -> Finding:
    return Finding(
        "broken_schedules",
        Level.PROBLEM,
        f"Schedule {found.schedule_id} in {found.namespace} is broken: {found.error}",
        "Put it again with a valid content, or resume it: tenure schedules resume "
        f"{found.schedule_id}",
        {"namespace": found.namespace, "schedule": found.schedule_id},
    )


def check_failing(failing: Sequence[FailingSchedule]) -> list[Finding]:
    """Report schedules whose tasks have failed several times in a row."""
    return [_failing(each) for each in failing[:FINDINGS_MAX]] or [
        ok("failing_schedules", "No schedule has failed several times in a row.")
    ]


def _failing(found: FailingSchedule) -> Finding:
    return Finding(
        "failing_schedules",
        Level.WARNING,
        f"Schedule {found.schedule_id} in {found.namespace} has failed {found.failure_count} times "
        "in a row",
        f"Look at what it starts: tenure schedules fires {found.schedule_id}",
        {
            "namespace": found.namespace,
            "schedule": found.schedule_id,
            "failures": str(found.failure_count),
        },
    )
