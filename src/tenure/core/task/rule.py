"""Which events a task takes in which states, and where they may lead: one screen."""

from __future__ import annotations

from typing import Final

import msgspec

from tenure.core.task.event import (
    AttemptCancelled,
    AttemptDeferred,
    AttemptFailed,
    AttemptReleased,
    AttemptSucceeded,
    AttemptYielded,
    CancelRequested,
    CancelSignalled,
    Confirmed,
    DamageFound,
    DeliveryMissed,
    Due,
    HandedOut,
    Heartbeaten,
    PauseRequested,
    ResumeRequested,
    TaskEvent,
    TaskLost,
    Terminated,
    Woken,
    WorkerLost,
)
from tenure.core.task.record import TaskState


class Rule(msgspec.Struct, frozen=True, gc=False):
    """From which states an event is taken, and to which it may lead."""

    sources: frozenset[TaskState]
    targets: frozenset[TaskState]


_P, _D, _R = TaskState.PENDING, TaskState.DISPATCHED, TaskState.RUNNING
_C, _W, _H = TaskState.CANCELLING, TaskState.WAITING, TaskState.PAUSED
_S, _F, _X = TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED
_LIVE: Final = frozenset({_D, _R, _C, _W})


def _rule(sources: frozenset[TaskState], *targets: TaskState) -> Rule:
    return Rule(sources=sources, targets=frozenset(targets))


RULES: Final[dict[type[TaskEvent], Rule]] = {
    HandedOut: _rule(frozenset({_P}), _D),
    Confirmed: _rule(_LIVE, _R, _C, _W),
    Heartbeaten: _rule(_LIVE, _R, _C, _W),
    AttemptSucceeded: _rule(_LIVE, _S),
    AttemptFailed: _rule(_LIVE, _P, _H, _F, _X),
    AttemptCancelled: _rule(_LIVE, _X),
    AttemptReleased: _rule(_LIVE, _P, _H, _X),
    AttemptDeferred: _rule(_LIVE, _W, _C),
    AttemptYielded: _rule(frozenset({_D, _R, _C}), _P, _W, _H),
    DeliveryMissed: _rule(frozenset({_D}), _P, _H),
    TaskLost: _rule(frozenset({_D, _R, _C}), _P, _H, _F, _X),
    WorkerLost: _rule(frozenset({_D, _R, _C}), _P, _R, _C, _H, _F, _X),
    CancelRequested: _rule(frozenset({_P, _D, _R, _C, _W, _H}), _P, _D, _C, _W, _H, _X),
    CancelSignalled: _rule(frozenset({_C}), _C),
    PauseRequested: _rule(frozenset({_P, _D, _R, _W, _H}), _D, _R, _W, _H),
    ResumeRequested: _rule(frozenset({_H, _D, _R, _W}), _P, _D, _R, _W),
    Woken: _rule(frozenset({_P, _D, _R, _C, _W, _H}), _P, _D, _R, _C, _W, _H),
    Terminated: _rule(frozenset({_P, _D, _R, _C, _W, _H}), _F),
    DamageFound: _rule(frozenset({_P, _D, _R, _C, _W, _H}), _F),
    Due: _rule(frozenset({_P, _D, _R, _C, _W, _H}), _P, _D, _R, _C, _W, _H, _F, _X),
}
