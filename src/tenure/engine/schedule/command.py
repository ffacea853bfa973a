"""What can be asked about schedules, what schedulers do, and the answers.

``actor`` is the id of the caller's key, for the audit log.
"""

from __future__ import annotations

import msgspec

from tenure.core.schedule.record import Fire, ResumeMode, Schedule, ScheduleSpec
from tenure.engine.command import Command

ScheduleKey = tuple[str, str]
"""(namespace, schedule)"""


class Stored(msgspec.Struct, frozen=True, gc=False):
    """The answer for a create or a put: the schedule as it is now."""

    schedule: Schedule
    is_new: bool = False
    is_changed: bool = False


class CreateSchedule(Command[Stored], frozen=True, kw_only=True):
    """Create a schedule; the same id and content again is not new, other content is refused.

    Without an id the server makes one.
    """

    namespace: str
    spec: ScheduleSpec
    schedule_id: str = ""
    actor: str = ""


class PutSchedule(Command[Stored], frozen=True, kw_only=True):
    """Create a schedule, or replace its content. Another rule counts from now on.

    One that is paused stays paused.
    """

    namespace: str
    schedule_id: str
    spec: ScheduleSpec
    actor: str = ""


class DeleteSchedule(Command[Schedule], frozen=True, kw_only=True):
    """Remove a schedule; its running tasks go on. The answer is the schedule as it was."""

    namespace: str
    schedule_id: str
    actor: str = ""


class PauseSchedule(Command[Schedule], frozen=True, kw_only=True):
    """Pause a schedule: after the answer no server fires it. Doing so twice changes the note."""

    namespace: str
    schedule_id: str
    note: str = ""
    actor: str = ""


class ResumeSchedule(Command[Schedule], frozen=True, kw_only=True):
    """Let a paused schedule go on, or a broken one try again; one that is active stays so."""

    namespace: str
    schedule_id: str
    mode: ResumeMode = ResumeMode.CATCH_UP
    actor: str = ""


class Triggered(msgspec.Struct, frozen=True, gc=False):
    """The answer for a trigger: its fire, which a repeated one gets again."""

    fire: Fire
    is_new: bool = True


class TriggerSchedule(Command[Triggered], frozen=True, kw_only=True):
    """Start the task of a schedule now, whatever its rule, overlap policy and state are.

    With a ``trigger_id`` of the caller it starts once, however often it is asked for.
    """

    namespace: str
    schedule_id: str
    trigger_id: str = ""
    actor: str = ""


class Backfilled(msgspec.Struct, frozen=True, gc=False):
    """The answer for a backfill: what it started, and the keys of ticks that had fired before."""

    started: tuple[Fire, ...]
    known_keys: tuple[str, ...] = ()


class BackfillSchedule(Command[Backfilled], frozen=True, kw_only=True):
    """Start the tasks of the ticks in ``(from_ms, to_ms]`` that have not fired; it ends by now."""

    namespace: str
    schedule_id: str
    from_ms: int
    to_ms: int
    actor: str = ""


class FireRound(msgspec.Struct, frozen=True, gc=False):
    """What one round did: schedules looked at, fires, and whether more is due."""

    count: int = 0
    fire_count: int = 0
    has_more: bool = False


class FireSchedules(Command[FireRound], frozen=True, kw_only=True):
    """Fire what is due: so many schedules, so many fires; with ``only``, of these alone."""

    amount: int
    fires_max: int
    only: tuple[ScheduleKey, ...] | None = None


class BreakSchedule(Command[bool], frozen=True, kw_only=True):
    """Set a schedule broken that cannot be stored as it has to be; tell whether that was needed."""

    namespace: str
    schedule_id: str
    error: str


class EndedFire(msgspec.Struct, frozen=True, gc=False):
    """A task of a schedule that may have ended."""

    namespace: str
    schedule_id: str
    task_id: str


class SettleFires(Command[int], frozen=True, kw_only=True):
    """Note how the tasks of fires have ended, and let schedules go on that wait for them."""

    items: tuple[EndedFire, ...]


class WakeSchedules(Command[str], frozen=True, kw_only=True):
    """Look at schedules of a namespace that was disabled; the answer is the last one, or empty."""

    namespace: str
    after_id: str = ""
    amount: int
