"""Batches about schedules on two connections of PostgreSQL: a pause against a fire, two rounds."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from tenure.core.schedule.record import Rule, Schedule, ScheduleSpec, Target
from tenure.core.task.record import Spec
from tenure.engine.batch import run as batch
from tenure.engine.claim.plan import ClaimPlan
from tenure.engine.clock import SystemClock
from tenure.engine.command import AnyCommand
from tenure.engine.schedule.command import (
    DeleteSchedule,
    FireRound,
    FireSchedules,
    PauseSchedule,
    PutSchedule,
)
from tenure.engine.settings import Settings
from tenure.store.table import fire as fire_table
from tenure.store.table import schedule as table
from tenure.store.table.listing import NEWEST
from tenure.store.transaction import Store, Tx
from tests.store.rows import NAMESPACE, server_id
from tests.store.test_locks import Act, Two, two

__all__ = ["two"]

CLOCK: Final = SystemClock()
ROUND: Final = FireSchedules(amount=10, fires_max=100)
SPEC: Final = ScheduleSpec(
    rule=Rule(every_ms=1_000),
    target=Target(type="mail", queue="default", spec=Spec(start_to_close_ms=1_000)),
)


def runs(*commands: AnyCommand) -> Act[Any]:
    """Return a batch of these commands."""
    context = batch.Context(
        CLOCK, server_id(3), Settings(), {}, frozenset({NAMESPACE}), ClaimPlan()
    )

    async def act(tx: Tx) -> list[object]:
        return (await batch.run(tx, list(commands), context)).answers

    return act


async def put(store: Store, count: int) -> None:
    """Store schedules, each with one tick that nobody has looked at."""
    commands = [
        PutSchedule(namespace=NAMESPACE, schedule_id=f"s{number}", spec=SPEC)
        for number in range(count)
    ]
    await store.transaction(runs(*commands))
    # Their mark is a second and a bit ago.
    await store.transaction(_make_due)


async def _make_due(tx: Tx) -> None:
    now_ms = await tx.now_ms()
    found = await table.load_active(tx, NAMESPACE, after_id="", amount=100)
    due = [
        replace(
            each,
            due_at_ms=now_ms - 10,
            progress=replace(each.progress, fired_until_ms=now_ms - 1_010),
        )
        for each in found
    ]
    await table.update_schedules(tx, due)


async def stored(store: Store, name: str) -> Schedule | None:
    found = await store.read(lambda tx: table.read_schedules(tx, [(NAMESPACE, name)]))
    return found[0] if found else None


async def count_fires(store: Store, name: str) -> int:
    key = (NAMESPACE, name)
    found = await store.read(
        lambda tx: fire_table.list_fires(tx, key, before_id=NEWEST, amount=100)
    )
    return len(found)


async def test_a_pause_waits_for_a_fire_and_nothing_fires_after_it(two: Two) -> None:
    await put(two.first, 1)
    pause = runs(PauseSchedule(namespace=NAMESPACE, schedule_id="s0"))
    (fired,), other = await two.overlap(runs(ROUND), pause, second_waits=True)
    assert isinstance(fired, FireRound)
    assert fired.fire_count >= 1
    assert isinstance(other, list)
    assert other[0].is_paused
    before = await count_fires(two.first, "s0")
    (again,) = await two.first.transaction(runs(ROUND))
    assert again.count == 0
    assert await count_fires(two.first, "s0") == before


async def test_a_round_passes_over_what_is_being_paused(two: Two) -> None:
    await put(two.first, 2)
    pause = runs(PauseSchedule(namespace=NAMESPACE, schedule_id="s0"))
    (paused,), other = await two.overlap(pause, runs(ROUND), second_waits=False)
    assert paused.is_paused
    assert isinstance(other, list)
    assert other[0].count == 1
    assert await count_fires(two.first, "s0") == 0
    assert await count_fires(two.first, "s1") >= 1


async def test_two_schedulers_share_what_is_due(two: Two) -> None:
    await put(two.first, 6)
    some = runs(FireSchedules(amount=4, fires_max=100))
    (first,), other = await two.overlap(some, runs(ROUND), second_waits=False)
    assert isinstance(other, list)
    assert (first.count, other[0].count) == (4, 2)
    for number in range(6):
        assert await count_fires(two.first, f"s{number}") >= 1


async def test_a_schedule_that_is_removed_while_it_is_due_fires_no_more(two: Two) -> None:
    await put(two.first, 1)
    delete = runs(DeleteSchedule(namespace=NAMESPACE, schedule_id="s0"))
    _, other = await two.overlap(delete, runs(ROUND), second_waits=False)
    assert isinstance(other, list)
    assert other[0].count == 0
    assert await stored(two.first, "s0") is None
    assert await count_fires(two.first, "s0") == 0


async def test_two_servers_that_put_one_schedule_store_it_once(two: Two) -> None:
    await put(two.first, 1)
    one = runs(PutSchedule(namespace=NAMESPACE, schedule_id="s0", spec=SPEC))
    other = runs(PutSchedule(namespace=NAMESPACE, schedule_id="s0", spec=SPEC))
    await two.overlap(one, other, second_waits=True)

    async def count(tx: Tx) -> Any:
        return await tx.each("lock_schedule_counts", [(NAMESPACE,)])

    (row,) = await two.first.transaction(count)
    assert tuple(row) == (NAMESPACE, 1)
