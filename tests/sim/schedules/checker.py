"""Looks at schedules and fires after each commit, and at the end compares them with all ticks.

It knows the ticks of each rule by walking over the seconds, and from which mark on a rule counted.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, cast

import apsw
import msgspec

from tenure.core.limits import LATE_TICK_MS
from tenure.core.schedule.record import (
    Overlap,
    Progress,
    Rule,
    ScheduleSpec,
    ScheduleState,
    SkipReason,
)
from tests.sim.schedules.ticking import walk
from tests.sim.trace import Violation

if TYPE_CHECKING:
    from tests.sim.schedules.world import ScheduleWorld
    from tests.sim.server import Server

_decode_spec = msgspec.msgpack.Decoder(ScheduleSpec).decode
_decode_progress = msgspec.msgpack.Decoder(Progress).decode
_SCHEDULES: Final = "SELECT id, version, state, spec, progress FROM schedules"
_FIRES: Final = (
    "SELECT rowid, schedule_id, kind, fire_at_ms, until_ms, recorded_at_ms, task_id, reason, count"
    " FROM fires WHERE rowid > ? ORDER BY rowid"
)
_TASKS: Final = "SELECT id FROM tasks UNION ALL SELECT id FROM history"


class Seen(msgspec.Struct, frozen=True):
    """A schedule as it was after a commit."""

    version: int
    state: ScheduleState
    spec: ScheduleSpec
    progress: Progress


def _is_paused(seen: Seen) -> bool:
    return seen.state is ScheduleState.PAUSED


class Segment(msgspec.Struct):
    """For how long a rule counted: from one mark to another."""

    rule: Rule
    from_ms: int
    until_ms: int


class Record(msgspec.Struct):
    """What is known of one schedule."""

    seen: Seen
    segments: list[Segment]
    ticks: set[int] = msgspec.field(default_factory=set)
    backfilled: set[int] = msgspec.field(default_factory=set)
    ranges: list[tuple[int, int]] = msgspec.field(default_factory=list)


class ScheduleChecker:
    """An observer with its own connection; it also keeps the database in memory alive."""

    def __init__(self, world: ScheduleWorld) -> None:
        self._world = world
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
        self._connection = apsw.Connection(world.path, flags=flags)
        self.records: dict[str, Record] = {}
        self.tick_count = 0
        self._last_fire = 0
        self._task_ids: set[str] = set()
        self._reasons: dict[str, int] = defaultdict(int)

    def close(self) -> None:
        """Let the database go."""
        self._connection.close()

    def committed(self, server: Server, dirty: int) -> None:
        """Look at what a commit has changed."""
        del server, dirty
        try:
            before = {name: record.seen for name, record in self.records.items()}
            self._look_at_schedules()
            self._look_at_fires(before)
        except Violation as violation:
            self._world.fail(violation)

    def live_tasks(self) -> list[str]:
        """Return tasks that nobody has ended."""
        return [cast("str", row[0]) for row in self._connection.execute("SELECT id FROM tasks")]

    # -- After each commit -----------------------------------------------------------------------

    def _look_at_schedules(self) -> None:
        rows = cast("list[tuple[Any, ...]]", self._connection.execute(_SCHEDULES))
        for name, version, state, spec, progress in rows:
            record = self.records.get(name)
            if record is not None and record.seen.version == version:
                continue
            now = Seen(
                version, ScheduleState(state), _decode_spec(spec), _decode_progress(progress)
            )
            if record is None:
                mark_ms = now.progress.fired_until_ms
                segment = Segment(now.spec.rule, mark_ms, mark_ms)
                self.records[name] = Record(now, [segment])
            else:
                self._changed(name, record, now)

    def _changed(self, name: str, record: Record, now: Seen) -> None:
        old, record.seen = record.seen, now
        mark_ms = now.progress.fired_until_ms
        if mark_ms < old.progress.fired_until_ms:
            raise Violation(f"the mark of {name} went back", name)
        if now.state is ScheduleState.BROKEN:
            raise Violation(f"{name} is broken: {now.progress.error}", name)
        is_resumed = _is_paused(old) and not _is_paused(now)
        if is_resumed and not self._world.operators.take_resume(name):
            raise Violation(f"{name} goes on and nobody has resumed it", name)
        record.segments[-1].until_ms = mark_ms
        if old.spec.rule != now.spec.rule:
            record.segments.append(Segment(now.spec.rule, mark_ms, mark_ms))
        self._world.note(f"{name} v{now.version} {now.state} until {mark_ms}")

    def _look_at_fires(self, before: dict[str, Seen]) -> None:
        rows = cast("list[tuple[Any, ...]]", self._connection.execute(_FIRES, (self._last_fire,)))
        for number, name, kind, at_ms, until_ms, now_ms, task_id, reason, count in list(rows):
            self._last_fire = number
            record = self.records[name]
            self._world.note(f"{name} {kind} {at_ms} to {until_ms} {reason or ''}")
            if kind == "skipped":
                self._skipped(name, record, (at_ms, until_ms), count)
                self._reasons[reason] += 1
                if reason == SkipReason.CATCHUP_LIMIT:
                    self._check_catchup(name, record, until_ms, now_ms)
                continue
            self._started(name, task_id)
            if kind == "trigger":
                continue
            if at_ms in record.ticks or at_ms in record.backfilled:
                raise Violation(f"{name} fired {at_ms} twice", name)
            if kind == "backfill":
                record.backfilled.add(at_ms)
                continue
            old = before.get(name)
            if old is not None and _is_paused(old) and _is_paused(record.seen):
                raise Violation(f"{name} fired {at_ms} while it was paused", name)
            self._check_newest(name, record, old, (at_ms, now_ms))
            record.ticks.add(at_ms)

    def _check_newest(
        self, name: str, record: Record, old: Seen | None, fired: tuple[int, int]
    ) -> None:
        """Check that only the newest ticks are caught up; one that waits for a task may be old."""
        specs = [each.spec for each in (old, record.seen) if each is not None]
        if any(each.overlap is not Overlap.ALLOW for each in specs):
            return
        at_ms, now_ms = fired
        if old is not None and old.progress.buffered_at_ms == at_ms:
            return
        most = max(each.max_catchup for each in specs)
        # What was chosen stays chosen for a while, and more ticks come meanwhile.
        newer = walk(record.segments[-1].rule, at_ms, now_ms - LATE_TICK_MS)
        if len(newer) > most:
            raise Violation(f"{name} fires {at_ms} before {len(newer)} newer ticks", name)

    def _started(self, name: str, task_id: str) -> None:
        if task_id in self._task_ids:
            raise Violation(f"task {task_id} of {name} belongs to two fires", name)
        self._task_ids.add(task_id)

    def _skipped(self, name: str, record: Record, found: tuple[int, int], count: int) -> None:
        ticks = [
            each
            for segment in record.segments
            for each in walk(segment.rule, max(segment.from_ms, found[0] - 1), found[1])
            if segment is record.segments[-1] or each <= segment.until_ms
        ]
        # One that was backfilled while it waited is not skipped, and may be in the middle.
        backfilled = len(record.backfilled.intersection(ticks))
        if not len(ticks) - backfilled <= count <= len(ticks) and count < 10_000:
            raise Violation(f"{name} skipped {len(ticks)} ticks and recorded {count}", name)
        if ticks[0] != found[0] or ticks[-1] != found[1]:
            raise Violation(f"a range of {name} does not begin and end with ticks", name)
        at = bisect.bisect_left(record.ranges, found)
        for first_ms, last_ms in record.ranges[max(0, at - 1) : at + 1]:
            if first_ms <= found[1] and found[0] <= last_ms:
                raise Violation(f"two ranges of {name} overlap at {found[0]}", name)
        record.ranges.insert(at, found)

    def _check_catchup(self, name: str, record: Record, until_ms: int, now_ms: int) -> None:
        """Check that as many of the newest ticks are left as may fire, and no more."""
        spec = record.seen.spec
        left = walk(record.segments[-1].rule, until_ms, now_ms)
        newest_ms = left[-1] if left else until_ms
        is_recent = now_ms - newest_ms <= LATE_TICK_MS
        most = max(spec.max_catchup, 1) if is_recent else spec.max_catchup
        if len(left) != most:
            raise Violation(f"{name} keeps {len(left)} ticks and may keep {most}", name)

    # -- At the end ------------------------------------------------------------------------------

    def verify(self) -> None:
        """Check that each tick has fired once or is in one range, and each fire has a task."""
        for name, record in self.records.items():
            self._verify_schedule(name, record)
        stored = [cast("str", row[0]) for row in self._connection.execute(_TASKS)]
        if sorted(stored) != sorted(self._task_ids):
            raise Violation(f"{len(self._task_ids)} fires have {len(stored)} tasks")

    def _verify_schedule(self, name: str, record: Record) -> None:
        starts = [first for first, _ in record.ranges]
        waiting_ms = record.seen.progress.buffered_at_ms
        all_ticks: set[int] = set()
        for segment in record.segments:
            for tick in walk(segment.rule, segment.from_ms, segment.until_ms):
                all_ticks.add(tick)
                at = bisect.bisect_right(starts, tick) - 1
                is_skipped = at >= 0 and tick <= record.ranges[at][1]
                found = (tick in record.ticks) + is_skipped
                if not found:
                    found = (tick in record.backfilled) or tick == waiting_ms
                if found != 1:
                    raise Violation(f"tick {tick} of {name} was found {found} times", name)
        self.tick_count += len(all_ticks)
        foreign = record.ticks - all_ticks
        if foreign:
            raise Violation(f"{name} fired {min(foreign)}, which is no tick", name)

    @property
    def reasons(self) -> dict[str, int]:
        """Return how many ranges were recorded for each reason."""
        return dict(self._reasons)
