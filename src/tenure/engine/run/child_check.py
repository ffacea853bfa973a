"""Checks of the commands about children: what is wrong is named before anything is loaded."""

from __future__ import annotations

from tenure.core import check as checks
from tenure.core import limits
from tenure.core.run import start as run_start
from tenure.core.run.record import ClosePolicy
from tenure.core.task import enqueue
from tenure.core.task.record import TaskKind
from tenure.engine.check import check_refs
from tenure.engine.run import child_command as c
from tenure.errors import InvalidArgument, PayloadTooLarge


def spawn_tasks(command: c.SpawnTasks) -> None:
    """Check what workers make, each child by itself, and that no id is used twice."""
    check_refs(command.namespace, command.worker_id, command.items)
    ids: set[str] = set()
    for item in command.items:
        checks.integer(item.number, "number", 0, limits.ATTEMPT_MAX)
        _group(item)
        if len(item.children) > limits.SPAWN_CHILDREN_MAX:
            message = f"children must be at most {limits.SPAWN_CHILDREN_MAX}"
            raise PayloadTooLarge(message, limit=limits.SPAWN_CHILDREN_MAX)
        for child in item.children:
            _child(child, item)
            if child.new.id in ids:
                message = "taskId must not be used twice in one request"
                raise InvalidArgument(message, field="taskId")
            ids.add(child.new.id)


def _group(item: c.SpawnReport) -> None:
    if not item.group_key:
        if not item.children:
            message = "children must not be empty"
            raise InvalidArgument(message, field="children")
        return
    checks.text(item.group_key, "groupKey", bytes_max=limits.STEP_KEY_BYTES_MAX)
    checks.integer(item.group_index, "groupIndex", 0, limits.ATTEMPT_MAX)
    checks.integer(item.group_total, "groupTotal", 0, limits.GROUP_ITEMS_MAX)
    if item.group_total and not item.children:
        message = "children must not be empty"
        raise InvalidArgument(message, field="children")


def _child(child: c.NewChild, item: c.SpawnReport) -> None:
    new = child.new
    if new.spec.kind is TaskKind.WORKFLOW:
        run_start.check_new(new)
    else:
        enqueue.check_new(new)
    if new.idempotency_key:
        message = "a child has no idempotency key: its call is its identity"
        raise InvalidArgument(message, field="idempotencyKey")
    checks.text(child.key, "key", bytes_max=limits.STEP_KEY_BYTES_MAX)
    checks.integer(child.index, "index", 0, limits.ATTEMPT_MAX)
    checks.integer(child.item, "item", 0, limits.GROUP_ITEMS_MAX - 1)
    if child.external_id:
        checks.text(child.external_id, "externalId", bytes_max=limits.EXTERNAL_ID_BYTES_MAX)
        if new.spec.kind is not TaskKind.WORKFLOW or item.group_key:
            message = "only a run that is no item of a group has an external id"
            raise InvalidArgument(message, field="externalId")
    if item.group_key and child.close_policy is not ClosePolicy.CANCEL:
        message = "the items of a group are cancelled when their run ends"
        raise InvalidArgument(message, field="closePolicy")


def cancel_children(command: c.CancelChildren) -> None:
    """Check which children shall end, and why."""
    check_refs(command.namespace, command.worker_id, command.items)
    for item in command.items:
        checks.integer(item.number, "number", 0, limits.ATTEMPT_MAX)
        checks.text(item.reason, "reason", bytes_max=limits.TEXT_BYTES_MAX)
        checks.text(item.group_key, "groupKey", bytes_max=limits.STEP_KEY_BYTES_MAX)
        if len(item.child_ids) > limits.SPAWN_CHILDREN_MAX:
            message = f"childIds must be at most {limits.SPAWN_CHILDREN_MAX}"
            raise PayloadTooLarge(message, limit=limits.SPAWN_CHILDREN_MAX)
        if bool(item.child_ids) == bool(item.group_key):
            message = "childIds or groupKey is needed, and not both"
            raise InvalidArgument(message, field="childIds")
        for child_id in item.child_ids:
            checks.task_id(child_id, "childIds")
