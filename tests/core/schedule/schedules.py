"""Schedules of tests, by hand and at random."""

from __future__ import annotations

import itertools
import random
from typing import Any, Final

from msgspec.structs import replace

from tenure.core.schedule import decide as rules
from tenure.core.schedule.event import Looked
from tenure.core.schedule.look import ScheduleDecision
from tenure.core.schedule.record import (
    Overlap,
    Progress,
    Rule,
    Schedule,
    ScheduleSpec,
    ScheduleState,
    Target,
)
from tenure.core.task.record import Spec, TaskKind
from tenure.errors import Rejection

NOW: Final = 1_767_225_600_000
SECOND: Final = 1_000
EVERY_SECOND: Final = Rule(every_ms=SECOND)
_numbers = itertools.count(1)


def new_id() -> str:
    return f"00000000-0000-7000-8000-{next(_numbers):012x}"


def spec(rule: Rule = EVERY_SECOND, *, is_run: bool = False, **changes: Any) -> ScheduleSpec:
    task = Spec(kind=TaskKind.WORKFLOW) if is_run else Spec(start_to_close_ms=1_000)
    about = {name: changes.pop(name) for name in ("external_id", "on_live") if name in changes}
    target = Target(type="mail", queue="default", spec=task, **about)
    return ScheduleSpec(rule=rule, target=target, **changes)


def schedule(content: ScheduleSpec | None = None, **changes: Any) -> Schedule:
    """Return a schedule whose mark is now."""
    progress = {"fired_until_ms": NOW} | {
        name: changes.pop(name) for name in Progress.__struct_fields__ if name in changes
    }
    state = changes.get("state", ScheduleState.ACTIVE)
    if state is ScheduleState.BROKEN:
        progress.setdefault("error", "bad")
    due = NOW + SECOND if state is ScheduleState.ACTIVE else None
    fields: dict[str, Any] = {
        "namespace": "acme/default",
        "id": "nightly",
        "spec": content or spec(),
        "due_at_ms": due,
        **changes,
    }
    return Schedule(progress=Progress(**progress), **fields)


def looked(given: Schedule, at_ms: int, **changes: Any) -> ScheduleDecision:
    """Look at a schedule at so many milliseconds after now."""
    event = Looked(**{"new_id": new_id, "room": 10, **changes})
    decision = rules.decide(given, event, NOW + at_ms)
    assert not isinstance(decision, Rejection)
    return decision


def ticks(decision: ScheduleDecision) -> list[int]:
    """Return the seconds of the ticks that fire."""
    return [(each.fire_at_ms - NOW) // SECOND for each in decision.fires if each.task_id]


def skips(decision: ScheduleDecision) -> list[tuple[str, int, int, int]]:
    """Return the reasons, the first and last seconds and the counts of what is skipped."""
    return [
        (
            each.reason.value,
            (each.fire_at_ms - NOW) // SECOND,
            (each.until_ms - NOW) // SECOND,
            each.count,
        )
        for each in decision.fires
        if each.reason is not None
    ]


def some_schedule(chance: random.Random) -> Schedule:
    """Return a schedule in any state, with any policy."""
    state = chance.choice(list(ScheduleState))
    content = spec(
        chance.choice([EVERY_SECOND, Rule(cron="*/7 * * * * *"), Rule(cron="* * 15W * *")]),
        overlap=chance.choice(list(Overlap)),
        max_catchup=chance.choice([0, 1, 3]),
        catchup_window_ms=chance.choice([None, 5 * SECOND]),
        pause_after_failures=chance.choice([0, 1]),
        ends_at_ms=chance.choice([None, NOW + 3 * SECOND]),
    )
    made = schedule(
        content,
        state=state,
        failure_count=chance.randrange(3),
        last_task_id=chance.choice(["", new_id()]),
        is_held=chance.random() < 0.2,
    )
    if chance.random() < 0.3:
        waiting = replace(made.progress, buffered_at_ms=NOW, last_task_id=new_id())
        made = replace(made, progress=waiting)
    return made
