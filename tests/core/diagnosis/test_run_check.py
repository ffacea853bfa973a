"""Findings about runs: parked ones, long journals, children that are not closed."""

from __future__ import annotations

import pytest

from tenure.core.diagnosis import run_check as rules
from tenure.core.diagnosis.finding import Finding, Level
from tenure.core.diagnosis.run_check import LateClosings, LongJournal, ParkedRuns
from tenure.core.instant import instant_text
from tenure.core.limits import (
    FINDINGS_MAX,
    JOURNAL_BYTES_WARNING,
    JOURNAL_ENTRIES_MAX,
    JOURNAL_ENTRIES_WARNING,
)
from tenure.core.task.retry import ErrorCategory, ErrorInfo

NOW = 10_000_000
NAMESPACE = "acme/default"
RUN_ID = "019b0000-0000-7000-8000-000000000001"
MISMATCH = ErrorInfo(
    ErrorCategory.CONFIGURATION, "at 3 the journal has charge.", type="journal_mismatch"
)


def only(found: list[Finding]) -> Finding:
    (finding,) = found
    return finding


def journal(entries: int = 1, size: int = 1, namespace: str = NAMESPACE) -> LongJournal:
    return LongJournal(namespace, RUN_ID, "checkout", entries, size)


def test_nothing_is_wrong_with_runs_that_are_well() -> None:
    found = [
        *rules.check_parked([]),
        *rules.check_journals([journal(JOURNAL_ENTRIES_WARNING - 1, JOURNAL_BYTES_WARNING - 1)]),
        *rules.check_closings([], now_ms=NOW),
    ]
    assert [(each.check, each.level) for each in found] == [
        ("parked_runs", Level.OK),
        ("journal_size", Level.OK),
        ("late_closings", Level.OK),
    ]


def test_parked_runs_are_told_with_their_commonest_reason_and_what_to_do() -> None:
    finding = only(rules.check_parked([ParkedRuns(NAMESPACE, "checkout", 31, MISMATCH, 18, 20)]))
    assert finding.level is Level.PROBLEM
    assert finding.message == (
        "31 runs of type checkout in acme/default are parked, mostly because of journal_mismatch: "
        "at 3 the journal has charge (18 of 20 that were read)."
    )
    resume = "tenure runs resume --parked --type checkout --namespace acme/default"
    assert resume in finding.advice
    assert "roll back" in finding.advice
    assert finding.evidence == {
        "namespace": NAMESPACE,
        "type": "checkout",
        "count": "31",
        "errorType": "journal_mismatch",
        "errorCategory": ErrorCategory.CONFIGURATION.value,
        "errorMessage": "at 3 the journal has charge.",
    }


def test_one_parked_run_is_one_and_may_have_no_reason_that_can_be_read() -> None:
    one = only(rules.check_parked([ParkedRuns("default/default", "a", 1, MISMATCH, 1, 1)]))
    assert one.message.startswith("1 run of type a in default/default is parked, mostly because")
    assert "that were read" not in one.message
    assert one.advice.endswith("tenure runs ls --status parked --type a")
    bare = only(rules.check_parked([ParkedRuns(NAMESPACE, "a", 2)]))
    assert bare.message == "2 runs of type a in acme/default are parked."


def test_a_full_journal_needs_code_that_begins_anew() -> None:
    full = ErrorInfo(ErrorCategory.CONFIGURATION, "The journal is full.", type="journal_full")
    finding = only(rules.check_parked([ParkedRuns(NAMESPACE, "poll", 1, full, 1, 1)]))
    assert "continue_as_new" in finding.advice


def test_the_types_with_the_most_parked_runs_come_first_and_only_so_many() -> None:
    parked = [ParkedRuns(NAMESPACE, f"type-{count}", count) for count in range(1, 30)]
    found = rules.check_parked(parked)
    assert len(found) == FINDINGS_MAX
    assert [each.evidence["count"] for each in found[:2]] == ["29", "28"]


@pytest.mark.parametrize(
    ("entries", "size"), [(JOURNAL_ENTRIES_WARNING, 1), (1, JOURNAL_BYTES_WARNING)]
)
def test_a_journal_near_its_limit_is_a_warning(entries: int, size: int) -> None:
    finding = only(rules.check_journals([journal(), journal(entries, size)]))
    assert finding.level is Level.WARNING
    assert finding.message.startswith("1 run in acme/default has a journal near the limit.")
    assert (finding.evidence["entryCount"], finding.evidence["bytes"]) == (str(entries), str(size))


def test_the_longest_journal_of_a_namespace_is_named() -> None:
    long = [journal(JOURNAL_ENTRIES_WARNING), journal(JOURNAL_ENTRIES_MAX, 5 << 20)]
    other = journal(JOURNAL_ENTRIES_WARNING, namespace="zoo/default")
    first, second = rules.check_journals([*long, other])
    assert f"2 runs in {NAMESPACE} have journals near the limit." in first.message
    assert f"of run {RUN_ID} (checkout), has 50,000 of 50,000 entries and 5 of 64 MiB" in (
        first.message
    )
    assert "continue_as_new" in first.advice
    assert second.evidence["namespace"] == "zoo/default"


def test_children_that_are_not_closed_in_time_are_a_problem() -> None:
    finding = only(rules.check_closings([LateClosings(NAMESPACE, 2, NOW - 180_000)], now_ms=NOW))
    assert finding.level is Level.PROBLEM
    assert finding.message == (
        "Children of 2 ended runs or groups in acme/default are not closed, for up to 3m."
    )
    assert finding.evidence["oldestEndedAt"] == instant_text(NOW - 180_000)
    assert "child_closing" in finding.advice
