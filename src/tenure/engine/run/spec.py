"""The specs of commands about runs."""

from __future__ import annotations

from typing import Final

from tenure.engine.command_spec import CommandSpec
from tenure.engine.run import (
    check,
    child_check,
    child_command,
    child_handler,
    child_needs,
    handler,
    needs,
    retry,
)
from tenure.engine.run import command as c


def _entries_of(command: c.RecordSteps) -> int:
    return sum([len(each.entries) for each in command.items])


def _bytes_of(command: c.RecordSteps) -> int:
    return sum([len(entry.body.output or b"") for each in command.items for entry in each.entries])


def _children_of(command: child_command.SpawnTasks) -> int:
    return sum([len(each.children) for each in command.items])


def _inputs_of(command: child_command.SpawnTasks) -> int:
    return sum([len(new.new.input or b"") for each in command.items for new in each.children])


RUN_SPECS: Final = (
    CommandSpec(
        c.StartRun,
        check.start_run,
        needs.start_run,
        handler.start_run,
        payload_bytes=lambda command: len(command.new.input or b""),
        is_new_work=True,
        is_awaited=True,
    ),
    CommandSpec(
        c.RecordSteps,
        check.record_steps,
        needs.record_steps,
        handler.record_steps,
        weigh=_entries_of,
        payload_bytes=_bytes_of,
        is_awaited=True,
        can_be_single=True,
    ),
    CommandSpec(
        c.SignalRun,
        check.signal_run,
        needs.signal_run,
        handler.signal_run,
        payload_bytes=lambda command: len(command.signal.payload or b""),
    ),
    CommandSpec(c.RetryRun, check.retry_run, needs.retry_run, retry.retry_run, is_new_work=True),
    CommandSpec(c.CancelRun, check.cancel_run, needs.change_run, handler.change_run),
    CommandSpec(c.ResumeRun, check.change_run, needs.change_run, handler.change_run),
    CommandSpec(c.TerminateRun, check.change_run, needs.change_run, handler.change_run),
    CommandSpec(
        child_command.SpawnTasks,
        child_check.spawn_tasks,
        child_needs.spawn_tasks,
        child_handler.spawn_tasks,
        weigh=_children_of,
        payload_bytes=_inputs_of,
        is_awaited=True,
    ),
    CommandSpec(
        child_command.CancelChildren,
        child_check.cancel_children,
        child_needs.cancel_children,
        child_handler.cancel_children,
        weigh=lambda command: sum([max(1, len(each.child_ids)) for each in command.items]),
    ),
    CommandSpec(
        child_command.CloseChildren,
        needs=child_needs.close_children,
        handler=child_handler.close_children,
        weigh=lambda command: command.amount,
    ),
)
