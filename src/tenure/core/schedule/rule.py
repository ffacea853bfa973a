"""In which states a schedule accepts which event, and to which states it may lead: one screen."""

from __future__ import annotations

from typing import Final

import msgspec

from tenure.core.schedule import event as schedule_event
from tenure.core.schedule.event import ScheduleEvent
from tenure.core.schedule.record import ScheduleState


class ScheduleRule(msgspec.Struct, frozen=True, gc=False):
    """From which states an event is accepted, and to which it may lead."""

    sources: frozenset[ScheduleState]
    targets: frozenset[ScheduleState]


_A, _P = ScheduleState.ACTIVE, ScheduleState.PAUSED
_B, _E = ScheduleState.BROKEN, ScheduleState.ENDED
_ALL: Final = frozenset(ScheduleState)


def _rule(sources: frozenset[ScheduleState], *targets: ScheduleState) -> ScheduleRule:
    return ScheduleRule(sources=sources, targets=frozenset(targets))


RULES: Final[dict[type[ScheduleEvent], ScheduleRule]] = {
    schedule_event.Looked: _rule(frozenset({_A}), _A, _E, _B),
    schedule_event.PauseRequested: _rule(frozenset({_A, _P, _B}), _P),
    schedule_event.ResumeRequested: _rule(frozenset({_A, _P, _B}), _A, _E, _B),
    schedule_event.Replaced: _rule(_ALL, _A, _P, _E, _B),
    schedule_event.TasksEnded: _rule(_ALL, _A, _P, _E, _B),
    schedule_event.BreakFound: _rule(frozenset({_A}), _B),
    schedule_event.NamespaceEnabled: _rule(frozenset({_A}), _A),
}
