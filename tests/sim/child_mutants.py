"""Deliberate bugs in what runs do with children, and in how they begin anew."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from tenure.core.group import decide as group_rules
from tenure.core.journal.entry import EntryKind
from tenure.core.run import child
from tenure.core.run.record import ClosePolicy
from tenure.core.task import decide as task_rules
from tenure.core.task.event import AttemptContinued
from tenure.engine.batch import follow_up
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.task import handler as task_handler
from tenure.engine.task.command import FinishKind
from tenure.sdk.workflow.journal import Kind
from tenure.sdk.workflow.run import Run
from tests.sim.faults import Faults
from tests.sim.mutant import Function, Mutant

FAMILIES: Final = Faults(family_share=1.0)
LOSING: Final = Faults(worker_crash_rate=1.0, drain_rate=0.5, forget_share=0.1, slow_share=0.1)


def _end_told_twice(original: Function) -> Function:
    """Tell a run of each child again."""

    def changed(ws: Any, key: Any, entries: Any, **options: Any) -> None:
        original(ws, key, [*entries, *entries], **options)

    return changed


def _end_untold(original: Function) -> Function:
    """Forget to tell a run that a child has failed."""

    def changed(ws: Any, key: Any, entries: Any, **options: Any) -> None:
        is_child = [each.kind is EntryKind.CHILD for each in entries]
        kept = [
            each
            for each, is_end in zip(entries, is_child, strict=True)
            if not is_end or each.body.state == "succeeded"
        ]
        if kept:
            original(ws, key, kept, **options)

    return changed


def _end_of_old_round_told(_original: Function) -> Function:
    """Tell a run that has begun anew of the children of its last round."""

    def changed(parent: Any, _place: Any) -> bool:
        return parent is not None and parent.finished_at_ms is None and parent.link is not None

    return changed


def _yield_unchecked(original: Function) -> Function:
    """Let a run yield as if nothing had been appended since it has looked."""

    def changed(*args: Any) -> Any:
        event = original(*args)
        return replace(event, journal_end=event.wish.seen)

    return changed


def _wake_lost(_original: Function) -> Function:
    """Append to the journal of a run, and let it sleep on."""

    def changed(ws: Any, key: Any, entries: Any, *, is_urgent: bool) -> None:
        del is_urgent
        ws.append_entries(key, entries)

    return changed


def _signal_dropped(original: Function) -> Function:
    """Let a run begin anew without the first signal that it should take along."""

    def changed(task: Any, event: Any, now_ms: int) -> Any:
        return original(task, replace(event, kept=event.kept[1:]), now_ms)

    return changed


def _group_ends_early(original: Function) -> Function:
    """Take a group for whole when all items but one have ended."""

    def changed(group: Any, item: Any = None) -> Any:
        if group.open_count == 1 and group.spawned == group.total:
            group = replace(group, open_count=0)
        return original(group, item)

    return changed


def _failure_uncounted(original: Function) -> Function:
    """Count items that fail as if they had succeeded."""

    def changed(group: Any, item: Any) -> Any:
        return replace(original(group, item), failed_count=group.failed_count)

    return changed


def _not_closed(_original: Function) -> Function:
    """Let the children of a run live on when it ends."""
    return lambda *_, **__: None


def _not_terminated(original: Function) -> Function:
    """Cancel children that are to be terminated."""

    def changed(policy: Any) -> Any:
        return original(ClosePolicy.ABANDON if policy is ClosePolicy.TERMINATE else policy)

    return changed


def _marker_late(_original: Function) -> Function:
    """Record the marker of a patch so late that the end of the attempt comes first."""

    def changed(self: Any, patch: str, line: str) -> bool:
        del line
        is_new = self._is_live or self.journal.is_met
        return bool(
            self._patches.setdefault(patch, self.journal.has_note(Kind.PATCH, patch) or is_new)
        )

    return changed


def mutants() -> list[Mutant]:
    """Return all of them."""
    m = Mutant
    deciders, events = task_rules.DECIDERS, task_handler._EVENTS  # noqa: SLF001 (tables)
    return [
        m("child_end_twice", follow_up, "tell_run", _end_told_twice, FAMILIES),
        m("child_end_untold", follow_up, "tell_run", _end_untold, FAMILIES),
        m("child_end_of_old_round", child, "is_of", _end_of_old_round_told, FAMILIES),
        m("child_yield_unchecked", events, FinishKind.YIELDED, _yield_unchecked, FAMILIES),
        m("child_wake_lost", follow_up, "tell_run", _wake_lost, FAMILIES),
        m("continue_drops_signal", deciders, AttemptContinued, _signal_dropped, FAMILIES),
        m("group_ends_early", group_rules, "end", _group_ends_early, FAMILIES),
        m("group_failure_uncounted", group_rules, "end_item", _failure_uncounted, FAMILIES),
        m("patch_recorded_late", Run, "patched", _marker_late, LOSING),
        m("close_policy_skipped", WorkingSet, "close_children", _not_closed, FAMILIES),
        m("close_not_terminated", child, "closing", _not_terminated, FAMILIES),
    ]
