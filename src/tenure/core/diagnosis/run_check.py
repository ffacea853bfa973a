"""Checks of the runs of namespaces: parked ones, long journals, children that are not closed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tenure.core.diagnosis.finding import Finding, Level, ok
from tenure.core.duration import duration_text
from tenure.core.explain.fact import DEFAULT_NAMESPACE, counted, error_evidence, error_text
from tenure.core.instant import instant_text
from tenure.core.journal import room
from tenure.core.journal.numbering import JournalEnd
from tenure.core.limits import FINDINGS_MAX, JOURNAL_BYTES_MAX, JOURNAL_ENTRIES_MAX
from tenure.core.task.retry import ErrorInfo

_MIB: Final = 1 << 20
_FULL: Final = "journal_full"


class ParkedRuns(msgspec.Struct, frozen=True, gc=False):
    """How many runs of a type are parked; of some of them the commonest reason."""

    namespace: str
    type: str
    count: int
    reason: ErrorInfo | None = None
    like_count: int = 0
    read_count: int = 0


class LongJournal(msgspec.Struct, frozen=True, gc=False):
    """A live run, and how much its journal has."""

    namespace: str
    run_id: str
    type: str
    entry_count: int
    total_bytes: int

    @property
    def is_large(self) -> bool:
        """Whether it is near its limit."""
        return room.is_large(JournalEnd("", self.entry_count, self.total_bytes))

    @property
    def share(self) -> float:
        """How much of what is allowed it has."""
        return max(self.entry_count / JOURNAL_ENTRIES_MAX, self.total_bytes / JOURNAL_BYTES_MAX)


class LateClosings(msgspec.Struct, frozen=True, gc=False):
    """How many ended runs and groups of a namespace still have children to be closed."""

    namespace: str
    count: int
    ended_at_ms: int


def check_parked(parked: Sequence[ParkedRuns]) -> list[Finding]:
    """Report parked runs by type, the most first, with the commonest reason."""
    worst = sorted(parked, key=lambda each: (-each.count, each.namespace, each.type))
    return [_parked(each) for each in worst[:FINDINGS_MAX]] or [
        ok("parked_runs", "No run is parked.")
    ]


def _parked(found: ParkedRuns) -> Finding:
    are = "is" if found.count == 1 else "are"
    message = (
        f"{counted(found.count, 'run')} of type {found.type} in {found.namespace} {are} parked"
    )
    evidence = {"namespace": found.namespace, "type": found.type, "count": str(found.count)}
    advice = "Deploy code that fits, or roll back"
    if found.reason is not None:
        share = ""
        if found.read_count > 1:
            share = f" ({found.like_count} of {found.read_count} that were read)"
        message += f", mostly because of {error_text(found.reason).rstrip('.')}{share}"
        evidence |= error_evidence(found.reason)
        if found.reason.type == _FULL:
            advice = "Deploy code that begins anew in time (ctx.continue_as_new)"
    again = _command(f"tenure runs resume --parked --type {found.type}", found.namespace)
    listed = _command(f"tenure runs ls --status parked --type {found.type}", found.namespace)
    advice += f"; they are tried again by themselves, or at once: {again}. List them: {listed}"
    return Finding("parked_runs", Level.PROBLEM, f"{message}.", advice, evidence)


def check_journals(journals: Sequence[LongJournal]) -> list[Finding]:
    """Report runs whose journals are near their limit, by namespace."""
    groups: dict[str, list[LongJournal]] = {}
    for each in journals:
        if each.is_large:
            groups.setdefault(each.namespace, []).append(each)
    return [_large(groups[name]) for name in sorted(groups)[:FINDINGS_MAX]] or [
        ok("journal_size", "No journal of a run is near its limit.")
    ]


def _large(found: Sequence[LongJournal]) -> Finding:
    most = max(found, key=lambda each: (each.share, each.run_id))
    has = "has a journal" if len(found) == 1 else "have journals"
    message = (
        f"{counted(len(found), 'run')} in {most.namespace} {has} near the limit. The longest one, "
        f"of run {most.run_id} ({most.type}), has {most.entry_count:,} of {JOURNAL_ENTRIES_MAX:,} "
        f"entries and {most.total_bytes // _MIB} of {JOURNAL_BYTES_MAX // _MIB} MiB."
    )
    advice = (
        "A run whose journal is full is parked. Let its code begin anew from time to time: "
        "ctx.continue_as_new."
    )
    evidence = {
        "namespace": most.namespace,
        "count": str(len(found)),
        "run": most.run_id,
        "type": most.type,
        "entryCount": str(most.entry_count),
        "bytes": str(most.total_bytes),
    }
    return Finding("journal_size", Level.WARNING, message, advice, evidence)


def check_closings(late: Sequence[LateClosings], *, now_ms: int) -> list[Finding]:
    """Report ended runs and groups whose children live on although they are to be closed."""
    found = []
    for each in late:
        since = duration_text(now_ms - each.ended_at_ms)
        message = (
            f"Children of {counted(each.count, 'ended run or group', 'ended runs or groups')} in "
            f"{each.namespace} are not closed, for up to {since}."
        )
        advice = (
            "Look for warnings of child_closing in the log of the server: it is overloaded, or "
            "the store is slow."
        )
        evidence = {
            "namespace": each.namespace,
            "count": str(each.count),
            "oldestEndedAt": instant_text(each.ended_at_ms),
        }
        found.append(Finding("late_closings", Level.PROBLEM, message, advice, evidence))
    return found or [ok("late_closings", "The children of every ended run were closed.")]


def _command(text: str, namespace: str) -> str:
    return text if namespace == DEFAULT_NAMESPACE else f"{text} --namespace {namespace}"
