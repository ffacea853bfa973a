"""What commands about children need to have loaded: pure, one function per command."""

from __future__ import annotations

from tenure.engine.run import child_command as c
from tenure.store.table.lock_order import RowSets
from tenure.store.table.task import TaskKey


def _hold(needs: RowSets, key: TaskKey) -> None:
    """Lock a run whose row stays as it is."""
    needs.tasks.locked.add(key)
    needs.tasks.parents.add(key)


def spawn_tasks(needs: RowSets, command: c.SpawnTasks) -> None:
    """Lock the runs, look up the children, and count the open ones or find the group."""
    namespace = command.namespace
    for item in command.items:
        key = (namespace, item.task_id)
        _hold(needs, key)
        if item.group_key:
            needs.groups.calls.add((key, item.group_key))
            if not item.group_total:
                needs.journals.of_runs.add(key)
        else:
            needs.children.wanted.add(key)
        # Items that have ended are known by the count of their group: only live ids matter.
        ids = needs.tasks.parents if item.group_key else needs.tasks.wanted
        for child in item.children:
            ids.add((namespace, child.new.id))
            if child.external_id:
                needs.external_ids.wanted.add((namespace, child.external_id))
                needs.journals.of_runs.add(key)
    if command.speaker is not None:
        needs.workers.spoken_for.add(command.worker_id)


def cancel_children(needs: RowSets, command: c.CancelChildren) -> None:
    """Lock the runs and the children, which may be runs, or find the group."""
    namespace = command.namespace
    for item in command.items:
        key = (namespace, item.task_id)
        _hold(needs, key)
        needs.journals.of_runs.add(key)
        if item.group_key:
            needs.groups.calls.add((key, item.group_key))
        for child_id in item.child_ids:
            needs.tasks.wanted.add((namespace, child_id))
            needs.journals.of_runs.add((namespace, child_id))
    if command.speaker is not None:
        needs.workers.spoken_for.add(command.worker_id)


def close_children(needs: RowSets, command: c.CloseChildren) -> None:
    """Take an owner that has ended, and its next children."""
    needs.tasks.closing_max = command.amount
