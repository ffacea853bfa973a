"""The records of a schedule and of its fires."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from tenure.core.limits import MAX_CATCHUP, PRIORITY_DEFAULT
from tenure.core.run.external_id import OnLive
from tenure.core.task.record import Spec, TaskKind


class ScheduleState(enum.StrEnum):
    """The state of a schedule; the wire names are upper case.

    One that has ``ended`` has no tick left. One that is ``broken`` could not be evaluated or
    stored, and fires nothing until it is put or resumed.
    """

    ACTIVE = "active"
    PAUSED = "paused"
    BROKEN = "broken"
    ENDED = "ended"

    __hash__ = str.__hash__


class Overlap(enum.StrEnum):
    """What a tick does while the task of the tick before it is live."""

    ALLOW = "allow"
    SKIP = "skip"
    BUFFER_ONE = "buffer_one"
    CANCEL_PREVIOUS = "cancel_previous"


class ResumeMode(enum.StrEnum):
    """What happens to the ticks that came while a schedule was paused."""

    CATCH_UP = "catch_up"
    SKIP = "skip"


class Rule(
    msgspec.Struct,
    frozen=True,
    gc=False,
    omit_defaults=True,
    kw_only=True,
    rename={"cron": "c", "every_ms": "e", "offset_ms": "o", "zone": "z"},
):
    """When a schedule fires: by a cron rule in a zone, or each ``every_ms`` from the epoch on."""

    cron: str = ""
    every_ms: int = 0
    offset_ms: int = 0
    zone: str = "UTC"


class Target(
    msgspec.Struct,
    frozen=True,
    gc=False,
    omit_defaults=True,
    kw_only=True,
    rename={
        "type": "t",
        "queue": "q",
        "spec": "s",
        "input": "i",
        "priority": "p",
        "labels": "l",
        "external_id": "x",
        "on_live": "o",
    },
):
    """What a fire starts: the request of a task or, if ``spec.kind`` is a workflow, of a run.

    A run may have an external id; ``on_live`` is what a tick does if a live run has it: the run
    counts as started by this tick, or the tick is skipped.
    """

    type: str
    queue: str
    spec: Spec
    input: bytes | None = None
    priority: int = PRIORITY_DEFAULT
    labels: dict[str, str] | None = None
    external_id: str = ""
    on_live: OnLive = OnLive.RETURN

    @property
    def is_run(self) -> bool:
        """Whether a fire starts a run."""
        return self.spec.kind is TaskKind.WORKFLOW


class ScheduleSpec(
    msgspec.Struct,
    frozen=True,
    gc=False,
    omit_defaults=True,
    kw_only=True,
    rename={
        "rule": "r",
        "target": "t",
        "overlap": "o",
        "max_catchup": "m",
        "catchup_window_ms": "w",
        "jitter_ms": "j",
        "starts_at_ms": "s",
        "ends_at_ms": "e",
        "pause_after_failures": "f",
        "note": "n",
    },
):
    """The content of a schedule, as its user put it. Short names: it is stored.

    ``None`` is no window, no start and no end. A tick starts its task up to ``jitter_ms`` later.
    """

    rule: Rule
    target: Target
    overlap: Overlap = Overlap.ALLOW
    max_catchup: int = MAX_CATCHUP
    catchup_window_ms: int | None = None
    jitter_ms: int = 0
    starts_at_ms: int | None = None
    ends_at_ms: int | None = None
    pause_after_failures: int = 0
    note: str = ""

    @property
    def timing(self) -> tuple[object, ...]:
        """Return what decides which ticks there are."""
        return self.rule, self.starts_at_ms, self.ends_at_ms


class Progress(
    msgspec.Struct,
    frozen=True,
    gc=False,
    omit_defaults=True,
    kw_only=True,
    rename={
        "fired_until_ms": "u",
        "chosen_until_ms": "c",
        "last_fire_at_ms": "l",
        "last_task_id": "t",
        "buffered_at_ms": "b",
        "failure_count": "f",
        "is_held": "h",
        "pause_note": "n",
        "paused_at_ms": "p",
        "error": "e",
        "ahead_until_ms": "a",
    },
):
    """How far a schedule has come. Short names: it is stored.

    ``fired_until_ms`` is the mark: each tick up to it has fired, was skipped, or is the one tick
    that waits (``buffered_at_ms``) for the end of ``last_task_id``, the task of the last tick.
    Ticks until ``chosen_until_ms`` were missed and fire one after the other.
    ``failure_count`` counts failed tasks in a row. ``is_held`` says that the namespace was disabled
    when ticks were due. ``error`` is why the schedule is broken. Ticks that are not decided may
    have fired until ``ahead_until_ms``: by a backfill, or by an earlier schedule with the same id.
    """

    fired_until_ms: int = 0
    chosen_until_ms: int = 0
    last_fire_at_ms: int = 0
    last_task_id: str = ""
    buffered_at_ms: int = 0
    failure_count: int = 0
    is_held: bool = False
    pause_note: str = ""
    paused_at_ms: int = 0
    error: str = ""
    ahead_until_ms: int = 0

    @property
    def decided_until_ms(self) -> int:
        """Return the instant until which nothing can fire any more: a tick that waits can."""
        if not self.buffered_at_ms:
            return self.fired_until_ms
        return min(self.fired_until_ms, self.buffered_at_ms - 1)


NO_PROGRESS: Final = Progress()
# Until Python 3.12 members of an enum are found by a Python function.
_ACTIVE: Final = ScheduleState.ACTIVE
_BROKEN: Final = ScheduleState.BROKEN


class Schedule(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A schedule as it is stored; ``version`` fences every write of its row.

    ``due_at_ms`` is when a scheduler looks at it next: at its next tick, or earlier if it catches
    up or waits for a task. One that is paused, broken or ended keeps none.
    """

    namespace: str
    id: str
    spec: ScheduleSpec
    state: ScheduleState = ScheduleState.ACTIVE
    progress: Progress = NO_PROGRESS
    due_at_ms: int | None = None
    created_at_ms: int = 0
    changed_at_ms: int = 0
    version: int = 0

    def __post_init__(self) -> None:
        """Assert what holds for every schedule."""
        assert (self.due_at_ms is not None) == (self.state is _ACTIVE)
        assert bool(self.progress.error) == (self.state is _BROKEN)

    @property
    def key(self) -> tuple[str, str]:
        """Return the key of its row."""
        return self.namespace, self.id

    @property
    def is_paused(self) -> bool:
        """Whether somebody, or too many failures, has paused it."""
        return self.state is ScheduleState.PAUSED


class FireKind(enum.StrEnum):
    """Why there is a fire: a tick, a tick that was caught up by hand, a call, or skipped ticks."""

    TICK = "tick"
    BACKFILL = "backfill"
    TRIGGER = "trigger"
    SKIPPED = "skipped"

    __hash__ = str.__hash__


_SKIPPED: Final = FireKind.SKIPPED


class SkipReason(enum.StrEnum):
    """Why ticks did not fire."""

    CATCHUP_LIMIT = "catchup_limit"
    CATCHUP_WINDOW = "catchup_window"
    PAUSED = "paused"
    OVERLAP = "overlap"
    DISABLED = "disabled"
    # A put with another rule came before they were handled.
    REPLACED = "replaced"
    # A live run has the external id, and the schedule rejects another one.
    EXTERNAL_ID = "external_id"

    __hash__ = str.__hash__


class FireOutcome(enum.StrEnum):
    """How the task of a fire has ended. ``unknown``: the task was removed before anybody looked."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"

    __hash__ = str.__hash__


class Fire(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What became of a tick, a trigger, or a range of skipped ticks.

    Its key is unique in its namespace and never changes; only the ``outcome`` is filled in, once,
    when the task has ended. A skipped range goes from ``fire_at_ms`` to ``until_ms``, both ticks of
    it; of a large one ``count`` is a lower bound. ``recorded_at_ms`` is when the fire was decided.
    """

    id: str
    namespace: str
    schedule_id: str
    key: str
    kind: FireKind
    fire_at_ms: int
    recorded_at_ms: int
    task_id: str | None = None
    outcome: FireOutcome | None = None
    settled_at_ms: int | None = None
    reason: SkipReason | None = None
    until_ms: int = 0
    count: int = 1
    is_count_exact: bool = True

    def __post_init__(self) -> None:
        """Assert what holds for every fire."""
        is_skipped = self.kind is _SKIPPED
        assert (self.task_id is None) == is_skipped
        assert (self.reason is not None) == is_skipped
        assert (self.outcome is None) == (self.settled_at_ms is None)

    @property
    def lateness_ms(self) -> int:
        """Return how much later than planned it fired."""
        return max(0, self.recorded_at_ms - self.fire_at_ms)
