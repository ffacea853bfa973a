"""What a diagnosis says of schedules."""

from __future__ import annotations

from tenure.core.diagnosis.finding import Level
from tenure.core.diagnosis.schedule_check import (
    BrokenSchedule,
    FailingSchedule,
    LateSchedules,
    check_broken,
    check_failing,
    check_late,
)

NOW = 1_767_225_600_000


def test_nothing_is_wrong_without_late_broken_and_failing_schedules() -> None:
    found = [*check_late([], now_ms=NOW), *check_broken([]), *check_failing([])]
    assert [each.level for each in found] == [Level.OK] * 3
    assert [each.check for each in found] == [
        "late_schedules",
        "broken_schedules",
        "failing_schedules",
    ]


def test_late_schedules_are_named_by_namespace_the_latest_first() -> None:
    late = [
        LateSchedules("b/default", 1, NOW - 120_000, "x"),
        LateSchedules("a/default", 3, NOW - 3_600_000, "nightly"),
    ]
    first, second = check_late(late, now_ms=NOW)
    assert first.message == "3 schedules in a/default are late, the first by 1h"
    assert second.message == "1 schedule in b/default is late, the first by 2m"
    assert (first.level, first.evidence["schedule"]) == (Level.PROBLEM, "nightly")


def test_a_broken_schedule_is_named_with_its_error() -> None:
    (found,) = check_broken([BrokenSchedule("a/default", "nightly", "zone is gone")])
    assert found.message == "Schedule nightly in a/default is broken: zone is gone"
    assert "tenure schedules resume nightly" in found.advice


def test_a_failing_schedule_is_a_warning() -> None:
    (found,) = check_failing([FailingSchedule("a/default", "nightly", 4)])
    assert found.level is Level.WARNING
    assert found.message == "Schedule nightly in a/default has failed 4 times in a row"
