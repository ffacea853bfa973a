"""Lists of schedules and fires, what other servers and subscribers hear, and what is measured."""

from __future__ import annotations

import asyncio

import pytest

from tenure.core.change_hint import EventFilter, EventKind, Hint
from tenure.core.filter import ScheduleFilter
from tenure.core.schedule.record import Overlap
from tenure.engine.engine import Engine
from tenure.engine.meter import Tally
from tenure.engine.read import schedule as reads
from tenure.engine.read.query import PageRequest
from tenure.engine.read.sample import take_sample
from tenure.engine.replica.replica_hints import HintKind, heard, pack
from tenure.engine.schedule.command import DeleteSchedule, PauseSchedule
from tenure.engine.services.retention import Retention
from tenure.engine.services.schedule_firing import ScheduleFiring
from tenure.errors import InvalidArgument, NotFound
from tests.engine.schedule.schedules import (
    EVERY_MINUTE,
    EVERY_SECOND,
    MINUTE_MS,
    SECOND_MS,
    fires,
    pass_time,
    put,
    spec,
    stored,
)
from tests.engine.world import CURSOR_KEY, DAY_MS, NAMESPACE, OTHER_NAMESPACE, World
from tests.polling import eventually


def page(size: int = 0, token: str = "", *, wants_total: bool = False) -> PageRequest:
    return PageRequest(cursor_key=CURSOR_KEY, size=size, token=token, wants_total=wants_total)


async def listed(engine: Engine, **where: object) -> list[str]:
    """Return the ids of all pages."""
    found: list[str] = []
    token = ""
    while True:
        some = await reads.list_schedules(
            engine.store,
            namespace=NAMESPACE,
            page=page(2, token),
            where=ScheduleFilter(**where),  # type: ignore[arg-type]  # names of its fields
        )
        found += [each.schedule.id for each in some.items]
        token = some.next_page_token
        if not token:
            return found


async def test_schedules_are_listed_by_id_paused_ones_too(world: World, engine: Engine) -> None:
    for name in ("b", "A", "c", "a-1", "d"):
        await put(engine, spec(type="mail" if name != "c" else "other"), name)
    await engine.submit(PauseSchedule(namespace=NAMESPACE, schedule_id="d"))
    assert await listed(engine) == ["A", "a-1", "b", "c", "d"]
    assert await listed(engine, type="other") == ["c"]
    assert await listed(engine, is_paused=True) == ["d"]
    assert await listed(engine, is_paused=False) == ["A", "a-1", "b", "c"]
    first = await reads.list_schedules(
        engine.store, namespace=NAMESPACE, page=page(2, wants_total=True)
    )
    assert (first.total_count, first.is_total_exact) == (5, True)
    assert first.items[0].next_at_ms == world.clock.now_ms() + MINUTE_MS
    with pytest.raises(InvalidArgument):
        await reads.list_schedules(
            engine.store, namespace=OTHER_NAMESPACE, page=page(2, first.next_page_token)
        )
    with pytest.raises(NotFound):
        await reads.list_schedules(engine.store, namespace="gone/default", page=page())


async def test_fires_are_listed_the_newest_first_in_pages(world: World, engine: Engine) -> None:
    await put(engine, spec())
    await pass_time(world, engine, 5 * MINUTE_MS)
    first = await reads.list_fires(
        engine.store, namespace=NAMESPACE, schedule_id="nightly", page=page(3)
    )
    rest = await reads.list_fires(
        engine.store,
        namespace=NAMESPACE,
        schedule_id="nightly",
        page=page(3, first.next_page_token),
    )
    at = [each.fire_at_ms for each in (*first.items, *rest.items)]
    assert at == sorted(at, reverse=True)
    assert (len(at), rest.next_page_token) == (5, "")
    with pytest.raises(NotFound):
        await reads.list_fires(engine.store, namespace=NAMESPACE, schedule_id="x", page=page())


async def test_fires_are_kept_as_long_as_history(world: World, engine: Engine) -> None:
    job = ScheduleFiring()
    await put(engine, spec(overlap=Overlap.SKIP))
    await pass_time(world, engine, 3 * MINUTE_MS, job)
    await engine.submit(PauseSchedule(namespace=NAMESPACE, schedule_id="nightly"))
    await world.advance(8 * DAY_MS)
    await world.round(Retention(), engine)
    # The task of the first is still waiting.
    assert [each.outcome for each in await fires(engine)] == [None]


async def test_subscribers_hear_of_schedules(world: World, engine: Engine) -> None:
    chosen = EventFilter(NAMESPACE, frozenset({EventKind.SCHEDULE}))
    with engine.events.subscribe(chosen) as subscription:
        await put(engine, spec(EVERY_SECOND))
        await world.advance(SECOND_MS)
        await world.round(ScheduleFiring(), engine)
        await engine.submit(PauseSchedule(namespace=NAMESPACE, schedule_id="nightly"))
        await engine.submit(DeleteSchedule(namespace=NAMESPACE, schedule_id="nightly"))
        found: list[Hint] = []
        async with asyncio.timeout(5):
            while len(found) < 4:
                for each in await subscription.next(SECOND_MS) or []:
                    found += each.hints
    said = [(each.id, each.version, each.state) for each in found if each.kind == "schedule"]
    assert said == [
        ("nightly", 0, "ACTIVE"),
        ("nightly", 1, "ACTIVE"),
        ("nightly", 2, "PAUSED"),
        ("nightly", 3, "DELETED"),
    ]


def test_a_hint_about_schedules_is_understood() -> None:
    (payload,) = pack({HintKind.SCHEDULE: {"earlier"}})
    assert heard(payload).is_schedule_earlier
    assert not heard("queue a b").is_schedule_earlier


async def test_due_and_broken_schedules_are_sampled(world: World, engine: Engine) -> None:
    await put(engine, spec(EVERY_SECOND), "due")
    await put(engine, spec(EVERY_MINUTE), "later")
    await world.advance(SECOND_MS)
    sample = await take_sample(engine.store, deaf=())
    assert (sample.due_schedule_count, sample.broken_schedule_count) == (1, 0)


async def test_fires_are_tallied_by_result_with_their_lateness(
    world: World, engine: Engine
) -> None:
    tally = Tally()

    class Counting:
        def __getattr__(self, name: str) -> object:
            return tally.add if name == "committed" else (lambda *_: 0.0)

    engine.meter = Counting()  # type: ignore[assignment]  # it answers every call
    await put(engine, spec(EVERY_SECOND, max_catchup=2))
    await world.advance(5 * SECOND_MS)
    await world.round(ScheduleFiring(), engine)
    assert tally.fires.results == {"catchup_limit": 3, "tick": 2}
    assert tally.fires.lateness.total_ms == SECOND_MS


async def test_a_schedule_that_is_put_here_is_due_at_another_server(
    world: World, engine: Engine
) -> None:
    if world.dialect == "sqlite":
        return
    second = await world.start(services=(ScheduleFiring(),))
    await put(engine, spec(EVERY_SECOND))
    await world.advance(SECOND_MS)
    # Its interval is five seconds, and its clock stands still: only the hint tells it.
    await put(engine, spec(EVERY_SECOND), "other")
    await eventually(lambda: fires(second), "a fire at the other server", within_s=4)
    assert (await stored(second)).progress.last_fire_at_ms
