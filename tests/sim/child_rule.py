"""Invariants of children: their ends are in the journals of their runs, and no child outlives it.

The reference is what the rows of tasks show: who has made a task, and how it has ended.
"""

from __future__ import annotations

import operator
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from tenure.core.journal.entry import Entry, EntryKind
from tenure.core.run.child import place_of
from tenure.core.run.record import ClosePolicy, Origin
from tenure.core.task.record import Task, TaskState
from tests.sim.trace import Violation, short

if TYPE_CHECKING:
    from tests.sim.journal_rule import Change, JournalRules, Read
    from tests.sim.world import World

Key = tuple[str, str]
Call = tuple[str, str]
"""The journal of a run, and a key in it."""
CLOSED_MS: Final = 5_000


class _Group(msgspec.Struct):
    """What a group should be, by the rows of its items and by what was asked."""

    ended: dict[int, str] = {}
    spawned: int = 0
    is_told: bool = False

    def counts(self) -> tuple[int, int, int]:
        """Return how many have succeeded, failed and were cancelled."""
        states = Counter(self.ended.values())
        return states["succeeded"], states["failed"], states["cancelled"]


class ChildRules:
    """The children of a world, as their rows show them."""

    def __init__(self, world: World, journals: JournalRules, read: Read) -> None:
        self._world = world
        self._journals = journals
        self._read = read
        self._groups: dict[Call, _Group] = defaultdict(_Group)
        self._ended_ids: dict[str, Task] = {}
        self._orphan_since_ms: dict[Key, float] = {}
        self.end_count = self.closed_count = 0

    def committed(self, changes: Iterable[Change]) -> None:
        """Check what a commit has made of children, after the journals have grown."""
        changes = list(changes)
        for old, new in changes:
            place = place_of(new)
            if old is None and place.group_id:
                self._groups[place.journal_id, place.key].spawned += 1
        ended = [new for _, new in changes if new.finished_at_ms is not None]
        for task in ended:
            place = place_of(task)
            if place.run_id:
                self.end_count += 1
                self._ended_ids[task.id] = task
                self._check_item(task, place) if place.group_id else self._check_end(task, place)
        for journal_id, key in {
            (place.journal_id, place.key) for place in map(place_of, ended) if place.group_id
        }:
            self._check_group(journal_id, key)
        for old, new in changes:
            self._note_closed(old, new)

    def _waiting_parent(self, namespace: str, place: Origin) -> Task | None:
        """Return the run that waits for a child: it is live, with the journal of the call."""
        parent = self._world.checker.live.get((namespace, place.run_id))
        if parent is None or parent.link is None or parent.link.journal_id != place.journal_id:
            return None
        return parent

    # -- Ends ----------------------------------------------------------------------------------

    def _check_end(self, task: Task, place: Origin) -> None:
        """A child's end is in its parent's journal exactly once, or the parent was gone first."""
        if self._waiting_parent(task.namespace, place) is None:
            return
        entries = self._journals.entries[place.journal_id]
        found = [each for each in entries if each.kind is EntryKind.CHILD and each.key == place.key]
        if len(found) != 1 or not _is_end_of(found[0], task):
            self._fail(f"has ended, and its run has heard {len(found)} times of it", task)

    def _check_item(self, task: Task, place: Origin) -> None:
        found = [each for each in self._read(place.group_id, 0) if each.pos == place.item + 1]
        if len(found) != 1 or not _is_end_of(found[0], task):
            self._fail(f"has ended, and its group has {len(found)} ends of it", task)
        self._groups[place.journal_id, place.key].ended[place.item] = task.state.value

    def _check_group(self, journal_id: str, key: str) -> None:
        """A run hears of a group when all of its items have ended, or at a failure."""
        asked = self._world.request_log.groups.get((journal_id, key))
        group = self._groups[journal_id, key]
        owner = self._journals.owner_of(journal_id)
        live = self._world.checker.live.get(owner) if owner is not None else None
        link = None if live is None else live.link
        if live is None or link is None or link.journal_id != journal_id or asked is None:
            return
        failed = len(group.ended) - group.counts()[0]
        is_whole = len(group.ended) == group.spawned == asked.group_total
        # One that its run has cancelled ends with its last item.
        is_closed = (journal_id, key) in self._world.request_log.closed_groups
        should_end = is_whole or (asked.fails_fast and failed > 0 and not is_closed)
        if should_end and not group.is_told:
            message = f"group {key} has {group.ended} of {asked.group_total}, and is not told"
            raise Violation(message, live.id)

    def appended(self, entry: Entry, run: Task) -> str | None:
        """Return what is wrong with what the server has told a run of its children."""
        if entry.kind is EntryKind.CHILD:
            task = self._world.checker.finished.get((run.namespace, entry.content.task_id))
            if task is None or not _is_end_of(entry, task):
                return "has the end of a child that has not ended so"
            place = place_of(task)
            if (place.run_id, place.journal_id) != (run.id, entry.journal_id):
                return "has the end of a child that is not its own"
            return None
        # One that fails fast leaves items behind, which shall end too.
        self._close(run.namespace, entry.journal_id, entry.key)
        return self._told(entry)

    def _told(self, entry: Entry) -> str | None:
        """Compare what a run hears of a group with the ends of its items, this commit's too."""
        group = self._groups[entry.journal_id, entry.key]
        content = entry.content
        group.is_told = True
        ended = {each.pos - 1: each.content.state for each in self._read(content.group_id, 0)}
        counts = Counter(ended.values())
        kept = (counts["succeeded"], counts["failed"], counts["cancelled"])
        told = (content.succeeded, content.failed, content.cancelled)
        asked = self._world.request_log.groups.get((entry.journal_id, entry.key))
        if asked is None:
            return f"hears of the group {entry.key}, which nobody has made"
        has_failed = asked.fails_fast and kept[0] < sum(kept)
        # After a first failure more may end in the same commit.
        is_right = told == kept or (has_failed and all(map(operator.le, told, kept)))
        if not is_right or content.total != asked.group_total:
            return f"hears {told} of {content.total} of the group {entry.key}, which has {kept}"
        is_closed = (entry.journal_id, entry.key) in self._world.request_log.closed_groups
        if sum(kept) < content.total and not is_closed and not has_failed:
            return f"hears of the group {entry.key}, which goes on"
        return None

    # -- Closing -------------------------------------------------------------------------------

    def _note_closed(self, old: Task | None, new: Task) -> None:
        """Note whom a run that has ended, or begun anew, leaves behind: they shall end too."""
        if old is None or old.link is None or old.link.journal_id is None:
            return
        assert new.link is not None
        if new.finished_at_ms is not None or new.link.journal_id != old.link.journal_id:
            self._close(new.namespace, old.link.journal_id, "")

    def close_group(self, namespace: str, journal_id: str, key: str) -> None:
        """Note that the items of a group may be closed."""
        self._close(namespace, journal_id, key)

    def _close(self, namespace: str, journal_id: str, key: str) -> None:
        log = self._world.request_log
        for task in self._world.checker.live.values():
            place = place_of(task)
            if task.namespace != namespace or place.journal_id != journal_id:
                continue
            if key and (place.key != key or not place.group_id):
                continue
            asked = {ClosePolicy.CANCEL: log.cancelled, ClosePolicy.TERMINATE: log.terminated}
            if place.close_policy in asked:
                asked[place.close_policy].add((task.namespace, task.id))

    def watch(self, live: dict[Key, Task]) -> None:
        """No live child of an ended run outlives its policy by more than five seconds."""
        world = self._world
        is_served = all(each.is_up and not each.is_stopped for each in world.servers)
        for key, task in live.items():
            place = place_of(task)
            if not place.run_id or self._waiting_parent(task.namespace, place) is not None:
                self._orphan_since_ms.pop(key, None)
                continue
            since_ms = self._orphan_since_ms.setdefault(key, world.now_ms)
            is_closed = place.close_policy is ClosePolicy.ABANDON or (
                place.close_policy is ClosePolicy.CANCEL and task.is_cancel_requested
            )
            late_ms = world.now_ms - max(since_ms, world.troubled_at_ms) - CLOSED_MS
            if is_served and not is_closed and late_ms > world.slack_ms:
                self._fail(f"outlives its run, in spite of {place.close_policy}", task)

    def _fail(self, what: str, task: Task) -> None:
        place = place_of(task)
        message = f"child {short(task.id)} ({task.state}) of run {short(place.run_id)} {what}"
        raise Violation(message, task.id, place.run_id)


def _is_end_of(entry: Entry, task: Task) -> bool:
    """Tell whether an entry says of a child how it has ended."""
    content = entry.content
    is_same = (content.task_id, content.state) == (task.id, task.state.value)
    has_error = content.error is not None
    return (
        is_same
        and content.output == task.output
        and has_error != (task.state is TaskState.SUCCEEDED)
    )
