"""Converts what the holder of a run asks about its children, and the answers."""

from __future__ import annotations

from typing import Final

from tenure.api.rpc import error
from tenure.api.rpc.view import run_view, task_view
from tenure.core.run.record import ClosePolicy
from tenure.core.task.record import Spec
from tenure.engine.run import child_command as c
from tenure.errors import InvalidArgument, Rejection, TenureError
from tenure.v1 import journal_pb2, task_pb2

_POLICY_OF: Final[dict[int, ClosePolicy]] = {
    journal_pb2.CLOSE_POLICY_UNSPECIFIED: ClosePolicy.CANCEL,
    **{journal_pb2.ClosePolicy.Value(f"CLOSE_POLICY_{each.name}"): each for each in ClosePolicy},
}


def read_options(given: task_pb2.TaskOptions) -> Spec:
    """Return the spec of the options of a child; without a kind it is an activity."""
    is_run = given.kind == task_pb2.TASK_KIND_WORKFLOW
    return run_view.read_options(given) if is_run else task_view.read_options(given)


def spawn_report(message: journal_pb2.SpawnReport, specs: task_view.SpecReader) -> c.SpawnReport:
    """Return the children that the holder of a run makes."""
    return c.SpawnReport(
        task_id=message.task_id,
        attempt=message.attempt,
        number=message.number,
        children=tuple([_new_child(each, specs) for each in message.children]),
        group_key=message.group_key,
        group_index=message.group_index,
        group_total=message.group_total,
        fails_fast=message.fails_fast,
    )


def _new_child(message: journal_pb2.NewChild, specs: task_view.SpecReader) -> c.NewChild:
    policy = _POLICY_OF.get(message.close_policy)
    if policy is None:
        text = "closePolicy must be CANCEL, TERMINATE or ABANDON"
        raise InvalidArgument(text, field="closePolicy")
    return c.NewChild(
        # Its id follows from the call that makes it: the server makes none.
        new=task_view.new_task(message.task, message.task.task_id, specs),
        key=message.key,
        index=message.index,
        item=message.item,
        close_policy=policy,
        external_id=message.external_id,
    )


def child_cancel(message: journal_pb2.ChildCancel) -> c.ChildCancel:
    """Return which children the holder of a run asks to end."""
    return c.ChildCancel(
        task_id=message.task_id,
        attempt=message.attempt,
        number=message.number,
        child_ids=tuple(message.child_ids),
        group_key=message.group_key,
        reason=message.reason,
    )


Asked = c.SpawnReport | c.ChildCancel | journal_pb2.SpawnReport | journal_pb2.ChildCancel


def child_ack(item: c.SpawnReport | c.ChildCancel, answer: c.ChildAnswer) -> journal_pb2.ChildAck:
    """Say that something is done, or why not."""
    if answer is not None:
        return refused(item, answer)
    return journal_pb2.ChildAck(task_id=item.task_id, attempt=item.attempt, number=item.number)


def refused(item: Asked, refusal: TenureError | Rejection) -> journal_pb2.ChildAck:
    """Say why nothing of it was done."""
    is_spawn = isinstance(item, c.SpawnReport | journal_pb2.SpawnReport)
    request = journal_pb2.SpawnReport if is_spawn else journal_pb2.ChildCancel
    return journal_pb2.ChildAck(
        task_id=item.task_id,
        attempt=item.attempt,
        number=item.number,
        error=error.detail(refusal, request.DESCRIPTOR),
    )
