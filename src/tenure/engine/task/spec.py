"""The specs of task commands."""

from __future__ import annotations

from typing import Final

from tenure.engine.command_spec import CommandSpec
from tenure.engine.task import check, handler, needs
from tenure.engine.task import command as c


def _bytes_of(command: c.FinishTasks) -> int:
    size = sum([len(each.output or b"") for each in command.items])
    anew = [each.anew for each in command.items if each.anew is not None]
    return size + sum([len(each.input or b"") for each in anew]) if anew else size


# A tuple without a type of its own: mypy compares each function with its kind of command.
TASK_SPECS: Final = (
    CommandSpec(
        c.EnqueueTasks,
        check.enqueue_tasks,
        needs.enqueue_tasks,
        handler.enqueue_tasks,
        weigh=lambda command: len(command.tasks),
        payload_bytes=lambda command: sum([len(each.input or b"") for each in command.tasks]),
        is_new_work=True,
        is_awaited=True,
        can_be_single=True,
    ),
    CommandSpec(c.ClaimTasks, check=check.claim_tasks, is_new_work=True),
    CommandSpec(
        c.ConfirmTasks,
        check.confirm_tasks,
        needs.report_tasks,
        handler.confirm_tasks,
        weigh=lambda command: len(command.items),
        can_be_single=True,
    ),
    CommandSpec(
        c.HeartbeatTasks,
        check.heartbeat_tasks,
        needs.report_tasks,
        handler.heartbeat_tasks,
        weigh=lambda command: len(command.items),
        payload_bytes=lambda command: sum([len(each.details or b"") for each in command.items]),
        can_be_single=True,
    ),
    CommandSpec(
        c.FinishTasks,
        check.finish_tasks,
        needs.finish_tasks,
        handler.finish_tasks,
        weigh=lambda command: len(command.items),
        payload_bytes=_bytes_of,
        is_awaited=True,
        can_be_single=True,
    ),
    CommandSpec(
        c.CompleteById,
        check.complete_by_id,
        needs.complete_by_id,
        handler.complete_by_id,
        payload_bytes=lambda command: len(command.finish.output or b""),
    ),
    CommandSpec(c.CancelTask, check.cancel_task, needs.change_task, handler.change_task),
    CommandSpec(c.PauseTask, check.change_task, needs.change_task, handler.change_task),
    CommandSpec(c.ResumeTask, check.change_task, needs.change_task, handler.change_task),
    CommandSpec(c.TerminateTask, check.change_task, needs.change_task, handler.change_task),
    CommandSpec(c.RetryTask, check.retry_task, needs.retry_task, handler.retry_task),
    CommandSpec(c.SignalCancels, needs=needs.named_tasks, handler=handler.signal_cancels),
    CommandSpec(c.ReturnUndelivered, needs=needs.named_tasks, handler=handler.return_undelivered),
    CommandSpec(
        c.ProcessDue,
        needs=needs.process_due,
        handler=handler.process_due,
        weigh=lambda command: command.amount,
    ),
)
