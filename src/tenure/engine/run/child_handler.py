"""Commands about children: rows of their own, and events for those that shall end."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core.group import decide as group_rules
from tenure.core.group.record import Group
from tenure.core.journal.numbering import JournalEnd
from tenure.core.limits import OPEN_CHILDREN_MAX
from tenure.core.run import child
from tenure.core.task import decide as task_rules
from tenure.core.task import event as task_event
from tenure.core.task.record import Task, TaskKind
from tenure.engine.batch.follow_up import end_group, tell_run
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.command import WorkDone
from tenure.engine.run import child_command as c
from tenure.engine.run import external_id
from tenure.engine.run.handler import check_speaker, is_without_journal
from tenure.errors import Rejection
from tenure.store.table.task import TaskKey


def spawn_tasks(ws: WorkingSet, command: c.SpawnTasks) -> tuple[c.ChildAnswer, ...]:
    """Store what runs make; what is there already stays as it is."""
    check_speaker(ws, command)
    return tuple([_spawn(ws, command, item) for item in command.items])


def _holder(
    ws: WorkingSet, command: c.SpawnTasks | c.CancelChildren, item: c.SpawnReport | c.ChildCancel
) -> Task | Rejection:
    """Return the run of a report, if it is held by the reporter in this attempt."""
    task = ws.tasks.get((command.namespace, item.task_id))
    if task is None or is_without_journal(task):
        return Rejection("not_found", f"Task {item.task_id} was not found.")
    event = task_event.StepsRecorded(attempt=item.attempt, worker_id=command.worker_id)
    decision = task_rules.decide(task, event, ws.now_ms)
    return decision if isinstance(decision, Rejection) else task


def _spawn(ws: WorkingSet, command: c.SpawnTasks, item: c.SpawnReport) -> c.ChildAnswer:
    parent = _holder(ws, command, item)
    if isinstance(parent, Rejection):
        return parent
    has_runs = any(each.new.spec.kind is TaskKind.WORKFLOW for each in item.children)
    refusal = child.too_deep(parent) if has_runs else None
    if refusal is not None:
        return refusal
    return _spawn_items(ws, parent, item) if item.group_key else _spawn_each(ws, parent, item)


def _spawn_each(ws: WorkingSet, parent: Task, item: c.SpawnReport) -> c.ChildAnswer:
    """Store children that are calls of their own."""
    key = (parent.namespace, parent.id)
    fresh = []
    for each in item.children:
        known = ws.tasks.get((parent.namespace, each.new.id))
        if known is None:
            fresh.append(each)
        elif child.place_of(known).run_id != parent.id:
            return Rejection("already_exists", f"Task {each.new.id} already exists.")
    open_count = ws.rows.children.get(key, 0) + len(fresh)
    if open_count > OPEN_CHILDREN_MAX and fresh:
        message = (
            f"The run would have {open_count} open children; at most {OPEN_CHILDREN_MAX} are "
            "allowed. Wait for some of them, or use a map."
        )
        return Rejection("payload_too_large", message, {"limit": OPEN_CHILDREN_MAX})
    ws.rows.children[key] = open_count
    for each in fresh:
        call = child.Call(key=each.key, index=each.index, close_policy=each.close_policy)
        _make(ws, parent, each, call)
    return None


def _make(ws: WorkingSet, parent: Task, new: c.NewChild, call: child.Call) -> None:
    """Store a child; a run gets a journal of its own."""
    key = (parent.namespace, new.new.id)
    owner = external_id.live_owner_of(ws, parent.namespace, new.external_id)
    journal_id = ws.clock.new_id() if new.new.spec.kind is TaskKind.WORKFLOW else ""
    task = child.create(
        new.new,
        parent,
        call,
        now_ms=ws.now_ms,
        journal_id=journal_id,
        external_id="" if owner is not None else new.external_id,
    )
    if owner is not None:
        task = child.refused(task, new.external_id, owner.id, ws.now_ms)
        ws.ended_children.append(key)
    elif new.external_id:
        external_id.give(ws, parent.namespace, new.external_id, task)
    ws.tasks.add(task)
    if journal_id:
        ws.journals.ends[key] = JournalEnd(journal_id)


def _spawn_items(ws: WorkingSet, parent: Task, item: c.SpawnReport) -> c.ChildAnswer:
    """Store items of a group, in their order; its first report makes the group."""
    known = _group_of(ws, parent, item.group_key)
    group = known or _new_group(ws, parent, item)
    fresh = _fresh_items(ws, group, item)
    if isinstance(fresh, Rejection):
        return fresh
    if known is None:
        ws.groups.add(group)
    if fresh:
        group = group_rules.grow(group, len(fresh))
        ws.groups.put(group)
    for each in fresh:
        call = child.Call(
            key=group.key, index=group.call_index, group_id=group.group_id, item=each.item
        )
        _make(ws, parent, each, call)
    if not group.total:
        _end(ws, parent, group)
    return None


def _group_of(ws: WorkingSet, parent: Task, group_key: str) -> Group | None:
    assert parent.link is not None
    assert parent.link.journal_id is not None
    return ws.groups.of_call(parent.link.journal_id, group_key)


def _fresh_items(
    ws: WorkingSet, group: Group, item: c.SpawnReport
) -> tuple[c.NewChild, ...] | Rejection:
    """Return the items that are to be stored; a group that has ended takes none."""
    if group.total != item.group_total:
        message = f"The group {group.key} has {group.total} items, and not {item.group_total}."
        return Rejection("already_exists", message)
    passed = group_rules.fresh_items(group, [each.item for each in item.children])
    if isinstance(passed, Rejection):
        return passed
    fresh = item.children[passed:]
    for each in fresh:
        if (group.namespace, each.new.id) in ws.tasks:
            return Rejection("already_exists", f"Task {each.new.id} already exists.")
    return fresh


def _end(ws: WorkingSet, parent: Task, group: Group) -> None:
    """Let a run hear of a group at once, if nothing of it is open."""
    entry = end_group(ws, group)
    if entry is not None:
        tell_run(ws, (parent.namespace, parent.id), [entry], is_urgent=True)


def _new_group(ws: WorkingSet, parent: Task, item: c.SpawnReport) -> Group:
    assert parent.link is not None
    assert parent.link.journal_id is not None
    return Group(
        group_id=ws.clock.new_id(),
        namespace=parent.namespace,
        run_id=parent.id,
        journal_id=parent.link.journal_id,
        key=item.group_key,
        call_index=item.group_index,
        type=item.children[0].new.type if item.children else "",
        fails_fast=item.fails_fast,
        total=item.group_total,
    )


def cancel_children(ws: WorkingSet, command: c.CancelChildren) -> tuple[c.ChildAnswer, ...]:
    """Ask children of runs to end; those that have ended are passed over."""
    check_speaker(ws, command)
    return tuple([_cancel(ws, command, item) for item in command.items])


def _cancel(ws: WorkingSet, command: c.CancelChildren, item: c.ChildCancel) -> c.ChildAnswer:
    parent = _holder(ws, command, item)
    if isinstance(parent, Rejection):
        return parent
    for child_id in item.child_ids:
        key = (parent.namespace, child_id)
        task = ws.tasks.get(key)
        if task is not None and child.place_of(task).run_id == parent.id:
            # One that has ended refuses, and is passed over.
            ws.apply(key, task_event.CancelRequested(reason=item.reason))
    if item.group_key:
        _cancel_group(ws, parent, item.group_key)
    return None


def _cancel_group(ws: WorkingSet, parent: Task, group_key: str) -> None:
    """Close a group, and its open items after this batch."""
    group = _group_of(ws, parent, group_key)
    if group is None or group.has_ended:
        return
    closed = group_rules.close(group)
    if closed is not group:
        ws.groups.put(closed)
    ws.close_children((group.namespace, group.group_id), group.journal_id, is_group=True)
    _end(ws, parent, closed)


def close_children(ws: WorkingSet, command: c.CloseChildren) -> WorkDone:
    """Close the next children of an owner that has ended, each by its policy."""
    closing = ws.closings.taken
    if closing is None:
        return WorkDone(0)
    children = ws.closings.children
    count = sum([_close(ws, key, closing.journal_id) for key in children])
    if len(children) < command.amount:
        ws.closings.removed[closing.key] = closing
    else:
        ws.closings.put(replace(closing, after_id=children[-1][1]))
    return WorkDone(count, has_more=True)


def _close(ws: WorkingSet, key: TaskKey, journal_id: str) -> bool:
    """Close a child that is still live and of the generation that has ended."""
    task = ws.tasks.get(key)
    if task is None or task.finished_at_ms is not None:
        return False
    place = child.place_of(task)
    event = child.closing(place.close_policy)
    # One whose origin is damaged is of no other generation.
    if event is None or place.journal_id not in ("", journal_id):
        return False
    ws.apply(key, event)
    return True
