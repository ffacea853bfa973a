"""Callbacks become the reports that they are; a token for something else changes nothing."""

from __future__ import annotations

from tenure.core.task import callback_token
from tenure.core.task import event as task_event
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.callback import command as c
from tenure.engine.task import command as task_command
from tenure.engine.task import handler
from tenure.errors import InvalidToken, Rejection
from tenure.store.table.task import TaskKey


def start_callback(ws: WorkingSet, command: c.StartCallback) -> c.CallbackAnswer:
    """Confirm an attempt; the same process may say so again."""
    key = _own_task(ws, command)
    # The answer has no place for a cancel; that to a heartbeat has.
    event = task_event.Confirmed(attempt=command.item.attempt, said=command.said, is_answered=False)
    return _answer(ws, key, handler.report(ws, key, event))


def beat_callback(ws: WorkingSet, command: c.BeatCallback) -> c.CallbackAnswer:
    """Note that an attempt makes progress."""
    key = _own_task(ws, command)
    return _answer(ws, key, handler.beat(ws, key, command.item, None))


def complete_callback(ws: WorkingSet, command: c.CompleteCallback) -> c.CallbackAnswer:
    """End an attempt; a repeated end gets its first answer again."""
    key = _own_task(ws, command)
    return _answer(ws, key, handler.end(ws, key, command.item, None))


def _own_task(
    ws: WorkingSet, command: c.StartCallback | c.BeatCallback | c.CompleteCallback
) -> TaskKey:
    """Return the task of a callback, if its token names the task with its run."""
    key = (command.namespace, command.item.task_id)
    task = ws.tasks.get(key)
    if task is None or callback_token.run_id(task) != command.run_id:
        raise InvalidToken
    return key


def _answer(ws: WorkingSet, key: TaskKey, answer: task_command.ItemAnswer) -> c.CallbackAnswer:
    if isinstance(answer, Rejection):
        raise answer.to_error()
    return c.CallbackAnswer(answer, ws.tasks[key])
