"""In which states a task accepts which event, and to which states it may lead: one screen."""

from __future__ import annotations

from typing import Final

import msgspec

from tenure.core.task import event as task_event
from tenure.core.task.event import TaskEvent
from tenure.core.task.record import TaskState


class Rule(msgspec.Struct, frozen=True, gc=False):
    """From which states an event is accepted, and to which it may lead."""

    sources: frozenset[TaskState]
    targets: frozenset[TaskState]


_P, _D, _R = TaskState.PENDING, TaskState.DISPATCHED, TaskState.RUNNING
_C, _W, _H = TaskState.CANCELLING, TaskState.WAITING, TaskState.PAUSED
_S, _F, _X = TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED
_LIVE: Final = frozenset({_D, _R, _C, _W})


def _rule(sources: frozenset[TaskState], *targets: TaskState) -> Rule:
    return Rule(sources=sources, targets=frozenset(targets))


RULES: Final[dict[type[TaskEvent], Rule]] = {
    task_event.HandedOut: _rule(frozenset({_P}), _D),
    task_event.Confirmed: _rule(_LIVE, _R, _C, _W),
    task_event.Heartbeaten: _rule(_LIVE, _R, _C, _W),
    task_event.AttemptSucceeded: _rule(_LIVE, _S),
    task_event.AttemptFailed: _rule(_LIVE, _P, _H, _F, _X),
    task_event.AttemptCancelled: _rule(_LIVE, _F, _X),
    task_event.AttemptReleased: _rule(_LIVE, _P, _H, _X),
    task_event.AttemptDeferred: _rule(_LIVE, _W, _C),
    task_event.AttemptYielded: _rule(frozenset({_D, _R, _C}), _P, _W, _H),
    task_event.AttemptParked: _rule(frozenset({_D, _R, _C}), _W, _H, _X),
    task_event.AttemptContinued: _rule(frozenset({_D, _R, _C}), _P, _H),
    task_event.StepsRecorded: _rule(frozenset({_D, _R, _C}), _D, _R, _C),
    task_event.DeliveryMissed: _rule(frozenset({_D}), _P, _H),
    # Later it means nothing: a process has reported by itself.
    task_event.DeliveryAccepted: _rule(frozenset({_D}), _D),
    task_event.DeliveryRefused: _rule(frozenset({_D}), _P, _H, _F),
    task_event.TaskLost: _rule(frozenset({_D, _R, _C}), _P, _H, _F, _X),
    task_event.WorkerLost: _rule(frozenset({_D, _R, _C}), _P, _R, _C, _H, _F, _X),
    task_event.CancelRequested: _rule(frozenset({_P, _D, _R, _C, _W, _H}), _P, _D, _C, _W, _H, _X),
    task_event.CancelSignalled: _rule(frozenset({_C}), _C),
    task_event.PauseRequested: _rule(frozenset({_P, _D, _R, _W, _H}), _D, _R, _W, _H),
    task_event.ResumeRequested: _rule(frozenset({_H, _D, _R, _W}), _P, _D, _R, _W),
    task_event.EntryAppended: _rule(frozenset({_P, _D, _R, _C, _W, _H}), _P, _D, _R, _C, _W, _H),
    task_event.Terminated: _rule(frozenset({_P, _D, _R, _C, _W, _H}), _F),
    task_event.DamageFound: _rule(frozenset({_P, _D, _R, _C, _W, _H}), _F),
    task_event.Due: _rule(frozenset({_P, _D, _R, _C, _W, _H}), _P, _D, _R, _C, _W, _H, _F, _X),
}
