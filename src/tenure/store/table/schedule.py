"""Schedules and their fires within a batch: records in, records out. Nothing is decided here."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, cast

import msgspec

from tenure.core.limits import BACKFILL_SEEN_MAX, FIRES_AHEAD_MAX, TICKS_END_MS
from tenure.core.schedule.record import (
    Fire,
    Overlap,
    Progress,
    Rule,
    Schedule,
    ScheduleSpec,
    ScheduleState,
    Target,
)
from tenure.core.task.record import Spec
from tenure.store.failure import FenceLost
from tenure.store.table.codec import AnyRow
from tenure.store.table.fire import (
    ScheduleKey,
    TickSearch,
    find_fires,
    find_open_fires,
    find_ticks,
    insert_fires,
    settle_fires,
)
from tenure.store.table.row_set import RowSet, Table
from tenure.store.transaction import Tx

if TYPE_CHECKING:
    from tenure.store.table.lock_order import RowSets

UNREADABLE: Final = "The stored content cannot be read by this server; a newer one may have put it."
# Until Python 3.12 members of an enum are found by a Python function.
_ALLOW: Final = Overlap.ALLOW
_STATES: Final = {each.value: each for each in ScheduleState}
_encode = msgspec.msgpack.Encoder().encode
_decode_spec = msgspec.msgpack.Decoder(ScheduleSpec).decode
_decode_progress = msgspec.msgpack.Decoder(Progress).decode


def _schedule_from(row: AnyRow) -> Schedule:
    namespace, schedule_id, task_type, state, due_at_ms, created, changed, version, *parts = row
    try:
        spec, progress = _decode_spec(parts[0]), _decode_progress(parts[1])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Schedule(
            namespace=namespace,
            id=schedule_id,
            spec=ScheduleSpec(
                rule=Rule(), target=Target(type=task_type, queue="unknown", spec=Spec())
            ),
            state=ScheduleState.BROKEN,
            progress=Progress(error=UNREADABLE, ahead_until_ms=TICKS_END_MS),
            created_at_ms=created,
            changed_at_ms=changed,
            version=version,
        )
    return Schedule(
        namespace=namespace,
        id=schedule_id,
        spec=spec,
        state=_STATES[state],
        progress=progress,
        due_at_ms=due_at_ms,
        created_at_ms=created,
        changed_at_ms=changed,
        version=version,
    )


def _schedules_from(rows: Sequence[object]) -> list[Schedule]:
    return [_schedule_from(row) for row in cast("Sequence[AnyRow]", rows)]


async def lock_schedules(tx: Tx, keys: Iterable[ScheduleKey]) -> list[Schedule]:
    """Lock schedules, in the order of their keys."""
    return _schedules_from(await tx.each("lock_schedules", sorted(keys)))


async def read_schedules(tx: Tx, keys: Iterable[ScheduleKey]) -> list[Schedule]:
    """Read schedules without locking them."""
    return _schedules_from(await tx.each("read_schedules", sorted(keys)))


async def load_due(tx: Tx, *, now_ms: int, amount: int) -> list[Schedule]:
    """Lock schedules that are due; those that others look at are left out."""
    return _schedules_from(await tx.one("load_due_schedules", now_ms, amount))


async def load_named(tx: Tx, keys: Iterable[ScheduleKey], *, now_ms: int) -> list[Schedule]:
    """Lock those of some schedules that are due and that nobody looks at."""
    return _schedules_from(await tx.each("load_named_schedules", sorted(keys), now_ms))


async def load_active(tx: Tx, namespace: str, *, after_id: str, amount: int) -> list[Schedule]:
    """Lock active schedules of a namespace behind an id; those that others look at are left out."""
    rows = await tx.one("load_active_schedules", namespace, after_id, amount)
    return _schedules_from(rows)


async def next_due_ms(tx: Tx) -> int | None:
    """Return the earliest instant at which a schedule is due."""
    return cast("int | None", (await tx.one("next_due_schedule"))[0][0])


async def read_due(tx: Tx, *, now_ms: int, amount: int) -> list[ScheduleKey]:
    """Return which schedules are due, without locking them."""
    rows = cast("Sequence[AnyRow]", await tx.one("read_due_schedules", now_ms, amount))
    return [(row[0], row[1]) for row in rows]


async def insert_schedules(tx: Tx, schedules: Sequence[Schedule]) -> None:
    """Write new schedules."""
    rows = [
        (
            x.namespace,
            x.id,
            x.spec.target.type,
            x.state,
            x.due_at_ms,
            x.progress.failure_count,
            x.created_at_ms,
            x.changed_at_ms,
            x.version,
            _encode(x.spec),
            _encode(x.progress),
        )
        for x in schedules
    ]
    await tx.each("insert_schedules", rows)


async def update_schedules(tx: Tx, schedules: Sequence[Schedule]) -> None:
    """Write changed schedules without their content, each fenced by the version that was read."""
    rows = [_updated(each) for each in schedules]
    _check(schedules, await tx.fenced("update_schedules", rows))


async def replace_schedules(tx: Tx, schedules: Sequence[Schedule]) -> None:
    """Write schedules with a changed content, each fenced by the version that was read."""
    rows = [(*_updated(x), x.spec.target.type, _encode(x.spec)) for x in schedules]
    _check(schedules, await tx.fenced("replace_schedules", rows))


async def delete_schedules(tx: Tx, schedules: Sequence[Schedule]) -> None:
    """Remove schedules, each fenced by the version that was read."""
    rows = [(each.namespace, each.id, each.version) for each in schedules]
    _check(schedules, await tx.fenced("delete_schedules", rows))


def _updated(schedule: Schedule) -> tuple[object, ...]:
    return (
        schedule.namespace,
        schedule.id,
        schedule.version,
        schedule.state,
        schedule.due_at_ms,
        schedule.progress.failure_count,
        schedule.changed_at_ms,
        _encode(schedule.progress),
    )


def _check(schedules: Sequence[Schedule], written: int) -> None:
    if written != len(schedules):
        raise FenceLost(frozenset(each.id for each in schedules))


class ScheduleWork(msgspec.Struct):
    """What commands about schedules need beside named rows, and what was found.

    ``due_max`` due ones are locked, or those of ``only`` that are due, or ``active_max`` active
    ones of ``active_of`` behind an id. Named ones of ``starting`` may start tasks now; those of
    ``creating`` are created if they do not exist. ``counted`` are namespaces that get more
    schedules.
    ``fire_keys`` and ``of_tasks`` name fires; ``searches`` ticks that have fired. The fires of a
    batch are appended, and the ends of ``settled`` ones filled in.
    """

    due_max: int = 0
    only: tuple[ScheduleKey, ...] | None = None
    active_of: tuple[str, str] | None = None
    active_max: int = 0
    starting: set[ScheduleKey] = msgspec.field(default_factory=set)
    creating: set[ScheduleKey] = msgspec.field(default_factory=set)
    counted: set[str] = msgspec.field(default_factory=set)
    fire_keys: set[tuple[str, str]] = msgspec.field(default_factory=set)
    of_tasks: set[tuple[str, str]] = msgspec.field(default_factory=set)
    searches: list[TickSearch] = msgspec.field(default_factory=list)
    due: list[ScheduleKey] = msgspec.field(default_factory=list)
    active: list[ScheduleKey] = msgspec.field(default_factory=list)
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    more: dict[str, int] = msgspec.field(default_factory=dict)
    fires: dict[tuple[str, str], Fire] = msgspec.field(default_factory=dict)
    open_fires: dict[tuple[str, str], list[Fire]] = msgspec.field(default_factory=dict)
    ticks: dict[ScheduleKey, list[int]] = msgspec.field(default_factory=dict)
    appended: list[Fire] = msgspec.field(default_factory=list)
    settled: list[Fire] = msgspec.field(default_factory=list)
    replaced: set[ScheduleKey] = msgspec.field(default_factory=set)

    def note_known(self, found: Iterable[Fire]) -> None:
        """Take in fires that were looked for by their keys."""
        self.fires = {(each.namespace, each.key): each for each in found}

    def note_open(self, found: Iterable[Fire]) -> None:
        """Take in fires that were looked for by their tasks."""
        for fire in found:
            key = (fire.namespace, fire.task_id or "")
            self.open_fires.setdefault(key, []).append(fire)


class ScheduleRows(RowSet[ScheduleKey, Schedule]):
    """Schedules by (namespace, id), locked, and their fires.

    Most batches have nothing to do with schedules: ``work`` is made when a command asks for it.
    """

    __slots__ = ("_work",)

    table = Table(
        operator.attrgetter("namespace", "id"),
        load=lock_schedules,
        insert=insert_schedules,
        update=update_schedules,
        delete=delete_schedules,
    )

    def __init__(self) -> None:
        """Start with nothing."""
        super().__init__()
        self._work: ScheduleWork | None = None

    @property
    def work(self) -> ScheduleWork:
        """What is needed and found; from when somebody asks for it there may be some."""
        if self._work is None:
            self._work = ScheduleWork()
        return self._work

    @property
    def finds_more(self) -> bool:  # type: ignore[override]  # nobody sets it
        """Whether more than named rows may be needed."""
        return self._work is not None

    @property
    def saves_more(self) -> bool:  # type: ignore[override]  # nobody sets it
        """Whether more than changed rows may be written."""
        return self._work is not None

    async def load(self, tx: Tx, rows: RowSets) -> None:
        """Lock named schedules, then those that are due, and read what is known of their fires."""
        await super().load(tx, rows)
        work = self._work
        if work is None:
            return
        now_ms: int | None = None
        if work.due_max:
            now_ms = await tx.now_ms()
            if work.only is None:
                found = await load_due(tx, now_ms=now_ms, amount=work.due_max)
            else:
                found = await load_named(tx, work.only, now_ms=now_ms)
            work.due = [self.take(each) for each in found]
            work.searches += [_search(each, now_ms) for each in found if _is_ahead(each)]
        if work.active_of is not None:
            namespace, after_id = work.active_of
            active = await load_active(tx, namespace, after_id=after_id, amount=work.active_max)
            work.active = [self.take(each) for each in active]
        if self.loaded:
            # Due ones are locked without waiting: the time is as it was read before.
            rows.note_locked(now_ms)
        self._want_more(rows)
        await self._look_up(tx)

    def _want_more(self, rows: RowSets) -> None:
        """Let what due schedules depend on be loaded: namespaces, last tasks, external ids."""
        work = self.work
        starting = [*work.due, *(key for key in work.starting if key in self)]
        for namespace, schedule_id in starting:
            external_id = self[namespace, schedule_id].spec.target.external_id
            if external_id:
                rows.external_ids.wanted.add((namespace, external_id))
        for key in work.due:
            if key[0] not in rows.namespaces.known:
                rows.namespaces.wanted.add(key[0])
            if self[key].progress.last_task_id and self[key].spec.overlap is not _ALLOW:
                self._want_last(rows, self[key])

    def _want_last(self, rows: RowSets, schedule: Schedule) -> None:
        key = (schedule.namespace, schedule.progress.last_task_id)
        rows.tasks.locked.add(key)
        if schedule.spec.target.is_run and schedule.spec.overlap is Overlap.CANCEL_PREVIOUS:
            rows.journals.of_runs.add(key)

    async def _look_up(self, tx: Tx) -> None:
        work = self.work
        if work.counted:
            names = [(each,) for each in sorted(work.counted)]
            rows = cast("Sequence[AnyRow]", await tx.each("lock_schedule_counts", names))
            work.counts = {row[0]: row[1] for row in rows}
        if work.searches or work.creating:
            await self._find_ticks(tx)
        if work.fire_keys:
            work.note_known(await find_fires(tx, work.fire_keys))
        if work.of_tasks:
            work.note_open(await find_open_fires(tx, work.of_tasks))

    async def _find_ticks(self, tx: Tx) -> None:
        """Read which ticks have fired, and the newest one of schedules that are created."""
        work = self.work
        if work.searches:
            # A backfill has to know all that have fired in its range.
            amount = max(FIRES_AHEAD_MAX, BACKFILL_SEEN_MAX + 1 if work.starting else 0)
            work.ticks = await find_ticks(tx, work.searches, amount=amount)
        newest = [
            TickSearch(key, 0, TICKS_END_MS) for key in sorted(work.creating) if key not in self
        ]
        if newest:
            work.ticks |= await find_ticks(tx, newest, amount=1)

    async def save(self, tx: Tx, rows: RowSets) -> None:
        """Write schedules, how many there are, and fires."""
        del rows
        work = self.work
        replaced = [each for key, each in self.changed.items() if key in work.replaced]
        updated = [each for key, each in self.changed.items() if key not in work.replaced]
        for records, write in (
            (list(self.removed.values()), delete_schedules),
            (replaced, replace_schedules),
            (updated, update_schedules),
            (list(self.new.values()), insert_schedules),
        ):
            if records:
                await write(tx, records)
        if work.more:
            await tx.each("raise_schedule_counts", sorted(work.more.items()))
        if work.settled:
            await settle_fires(tx, work.settled)
        if work.appended:
            await insert_fires(tx, work.appended)

    def drop(self, schedule: Schedule) -> None:
        """Remove a schedule, stored or new."""
        self.pop(schedule.key, None)
        self.changed.pop(schedule.key, None)
        if self.new.pop(schedule.key, None) is None:
            self.removed[schedule.key] = self.loaded[schedule.key]


def _is_ahead(schedule: Schedule) -> bool:
    """Tell whether ticks may have fired that the schedule has not decided; few ever have."""
    return schedule.progress.ahead_until_ms > schedule.progress.decided_until_ms


def _search(schedule: Schedule, now_ms: int) -> TickSearch:
    """Return where ticks may have fired that the schedule has not decided."""
    after_ms = schedule.progress.decided_until_ms
    return TickSearch(schedule.key, after_ms, max(after_ms, now_ms))
