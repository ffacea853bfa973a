"""Hints of what changed: from this server and from others, continued, and given up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tenure.core import change_hint
from tenure.core.change_hint import ALL_KINDS, EventFilter, EventKind, Hint
from tenure.core.limits import EVENTS_KEPT_MS, EVENTS_TOLD_MAX
from tenure.engine.access.command import CreateNamespace, SetNamespace, SetQueue
from tenure.engine.engine import Engine
from tenure.engine.read import query
from tenure.engine.replica.event_feed import EventFeed, HintPage, Subscription
from tenure.engine.replica.replica_hints import HintKind, ReplicaHints, heard, pack
from tenure.engine.settings import Settings
from tenure.engine.task.command import ConfirmTasks, FinishKind, HeartbeatTasks, PauseTask, TaskBeat
from tenure.engine.worker.command import DrainWorker, EvictWorker
from tests.engine.run.runs import give_up_slot, running_run, signal, terminate
from tests.engine.world import FATAL, NAMESPACE, OTHER_NAMESPACE, QUEUE, World, ref
from tests.polling import eventually

HERE = EventFilter(NAMESPACE)
LONG_MS = 30_000
NOW_MS = 10
Said = tuple[str, str, int, str]


def said(pages: list[HintPage] | None, kind: EventKind = EventKind.TASK) -> list[Said]:
    """Return the hints of one kind: kind, id, version and state."""
    return [
        (hint.kind, hint.id, hint.version, hint.state)
        for page in pages or []
        for hint in page.hints
        if hint.kind is kind
    ]


async def everything(subscription: Subscription) -> list[HintPage]:
    """Return all that is there now."""
    found: list[HintPage] = []
    while pages := await subscription.next(NOW_MS):
        found += pages
    return found


async def hints_until(subscription: Subscription, count: int) -> list[HintPage]:
    found: list[HintPage] = []
    async with asyncio.timeout(LONG_MS / 1000):
        while len(said(found)) < count:
            found += await subscription.next(LONG_MS) or []
    return found


async def reset(subscription: Subscription) -> HintPage:
    """Wait for a reset."""
    async with asyncio.timeout(LONG_MS / 1000):
        while True:
            for page in await subscription.next(LONG_MS) or []:
                if page.missed:
                    return page


@pytest.fixture
async def subscription(engine: Engine) -> AsyncIterator[Subscription]:
    """Somebody who listens, and knows already that others may not have told everything."""
    with engine.events.subscribe(HERE) as made:
        if engine.store.is_shared:
            await reset(made)
        yield made


async def test_each_change_of_a_task_is_told_with_the_version_that_is_stored(
    world: World, engine: Engine, subscription: Subscription
) -> None:
    worker_id = await world.worker(engine)
    (task_id,) = await world.add(engine)
    steps = [("PENDING", await world.task(task_id))]
    (task,) = await world.claim(engine, worker_id)
    steps.append(("DISPATCHED", await world.task(task_id)))
    await world.confirm(engine, worker_id, task)
    steps.append(("RUNNING", await world.task(task_id)))
    await world.finish(engine, worker_id, task)
    steps.append(("SUCCEEDED", await world.task(task_id)))
    found = said(await everything(subscription))
    assert found == [("task", task_id, task.version, state) for state, task in steps]


async def test_a_run_is_told_with_its_status_and_is_no_task(
    world: World, engine: Engine, subscription: Subscription
) -> None:
    worker_id = await world.worker(engine)
    run = await running_run(world, engine, worker_id)
    beat = TaskBeat(task_id=run.id, attempt=run.attempt, percent=10.0)
    await engine.submit(HeartbeatTasks(namespace=NAMESPACE, worker_id=worker_id, items=(beat,)))
    await give_up_slot(world, engine, worker_id, run, wake_at_ms=world.clock.now_ms() + 1_000)
    await signal(engine, run.id)
    (again,) = await world.claim(engine, worker_id)
    await world.finish(engine, worker_id, again, FinishKind.PARKED, error=FATAL)
    await terminate(engine, run.id)
    pages = await everything(subscription)
    told = said(pages, EventKind.RUN)
    assert [state for *_, state in told] == [
        *("PENDING", "RUNNING", "RUNNING", "SLEEPING", "PENDING", "RUNNING", "PARKED", "FAILED")
    ]
    assert {each[1] for each in told} == {run.id}
    assert told[-1][2] == (await world.task(run.id)).version
    assert said(pages) == []
    assert [state for *_, state in said(pages, EventKind.PROGRESS)] == ["RUNNING"]


async def test_progress_is_no_event_of_kind_task(
    world: World, engine: Engine, subscription: Subscription
) -> None:
    worker_id = await world.worker(engine)
    (task_id,) = await world.add(engine)
    (task,) = await world.claim(engine, worker_id)
    beats = []
    for percent in (None, 10.0, 50.0):
        item = TaskBeat(task_id=task_id, attempt=task.attempt, percent=percent)
        await engine.submit(HeartbeatTasks(namespace=NAMESPACE, worker_id=worker_id, items=(item,)))
        beats.append((await world.task(task_id)).version)
    await engine.submit(PauseTask(namespace=NAMESPACE, task_id=task_id))
    pages = await everything(subscription)
    # The first heartbeat says that the task runs, and a request to pause it is a change.
    states = [state for *_, state in said(pages)]
    assert states == ["PENDING", "DISPATCHED", "RUNNING", "RUNNING"]
    told = [("progress", task_id, version, "RUNNING") for version in beats[1:]]
    assert said(pages, EventKind.PROGRESS) == told


async def test_workers_and_queues_are_told_with_the_version_that_is_stored(
    world: World, engine: Engine, subscription: Subscription
) -> None:
    worker_id = await world.worker(engine)
    await engine.submit(DrainWorker(namespace=NAMESPACE, worker_id=worker_id))
    await engine.submit(EvictWorker(namespace=NAMESPACE, worker_id=worker_id))
    for is_paused in (True, False):
        command = SetQueue(namespace=NAMESPACE, name=QUEUE, is_paused=is_paused)
        await engine.submit(command)
    pages = await everything(subscription)
    worker = (await world.view(worker_id)).worker
    workers = said(pages, EventKind.WORKER)
    assert [state for *_, state in workers][:3] == ["ONLINE", "DRAINING", "OFFLINE"]
    assert workers[-1] == ("worker", worker_id, worker.version, "OFFLINE")
    queue = (await query.get_queue(engine.store, namespace=NAMESPACE, name=QUEUE)).queue
    queues = said(pages, EventKind.QUEUE)
    assert [state for *_, state in queues] == ["PAUSED", "ACTIVE"]
    assert queues[-1] == ("queue", QUEUE, queue.version, "ACTIVE")
    assert {hint.queue for page in pages for hint in page.hints} == {QUEUE}


async def test_a_namespace_that_is_created_disabled_or_enabled_is_told(engine: Engine) -> None:
    with engine.events.subscribe(EventFilter("new/default")) as new:
        await engine.submit(CreateNamespace(name="new/default"))
        for is_disabled in (True, False):
            await engine.submit(SetNamespace(name="new/default", is_disabled=is_disabled))
        found = said(await everything(new), EventKind.NAMESPACE)
    states = [state for _, name, _, state in found if name == "new/default"]
    assert states == ["ACTIVE", "DISABLED", "ACTIVE"]


async def test_a_namespace_hears_of_nothing_but_its_own(
    world: World, engine: Engine, subscription: Subscription
) -> None:
    await engine.submit(CreateNamespace(name="new/default"))
    with engine.events.subscribe(EventFilter("new/default")) as new:
        for namespace in (OTHER_NAMESPACE, "new/default"):
            await world.enqueue(engine, world.new(), namespace=namespace)
        (told,) = await everything(new)
    (task_id,) = await world.add(engine)
    found = await everything(subscription)
    assert [each[1] for each in said(found)] == [task_id]
    assert {hint.namespace for hint in told.hints} == {"new/default"}


async def test_nothing_is_kept_while_nobody_listens(world: World, engine: Engine) -> None:
    await world.add(engine, 3)
    assert (len(engine.events), engine.events.is_on) == (0, False)
    with engine.events.subscribe(HERE):
        await world.add(engine, 3)
        assert len(engine.events) == 3
    assert engine.events.subscriber_count == 0
    # Whoever comes back within a minute finds what it missed; after that nothing is kept.
    await world.add(engine, 1)
    assert len(engine.events) == 4
    await world.advance(EVENTS_KEPT_MS)
    await eventually(lambda: not engine.events.is_on)
    await world.add(engine, 1)
    assert len(engine.events) == 0


async def test_a_stream_that_was_cut_goes_on_where_it_was(world: World, engine: Engine) -> None:
    with engine.events.subscribe(HERE) as first:
        ids = await world.add(engine, 4)
        (page,) = [page for page in await everything(first) if page.hints]
    # The connection broke after the second hint of the page.
    last_id = change_hint.position_text(engine.server_id, page.first_seq + 1)
    ids += await world.add(engine, 1)
    await world.enqueue(engine, world.new(), namespace=OTHER_NAMESPACE)
    with engine.events.subscribe(HERE, last_id) as again:
        assert again.position == last_id
        ids += await world.add(engine, 1)
        found = await everything(again)
    assert [each[1] for each in said(found)] == ids[2:]
    with engine.events.subscribe(EventFilter(OTHER_NAMESPACE), last_id) as other:
        assert len(said(await everything(other))) == 1
        position = other.position
    with engine.events.subscribe(HERE, position) as last:
        assert said(await everything(last)) == []


async def test_what_cannot_be_continued_is_reset_once_and_goes_on(
    world: World, engine: Engine, subscription: Subscription
) -> None:
    old = subscription.position
    await world.add(engine)
    await world.advance(EVENTS_KEPT_MS + 1)
    await world.add(engine)
    foreign = change_hint.position_text(world.clock.new_id(), 1)
    ahead = change_hint.position_text(engine.server_id, 10**9)
    for last_id, reason in (
        (old, "too_old"),
        (foreign, "unknown"),
        (ahead, "unknown"),
        ("nonsense", "unknown"),
    ):
        with engine.events.subscribe(HERE, last_id) as made:
            page = await reset(made)
            assert (page.reason, page.missed) == (reason, ALL_KINDS)
            (task_id,) = await world.add(engine)
            assert [each[1] for each in said(await everything(made))] == [task_id]


async def test_an_id_from_before_a_time_without_listeners_is_too_old(
    world: World, engine: Engine
) -> None:
    with engine.events.subscribe(HERE) as first:
        await world.add(engine)
        await everything(first)
        last_id = first.position
    await world.advance(EVENTS_KEPT_MS)
    await eventually(lambda: not engine.events.is_on)
    await world.add(engine)
    with engine.events.subscribe(HERE, last_id) as again:
        assert (await reset(again)).reason == "too_old"


def feed_of(engine: Engine, kept_max: int) -> EventFeed:
    """Return a feed that keeps few hints."""
    settings = Settings(events_kept_max=kept_max)
    return EventFeed(
        engine.store,
        ReplicaHints(engine.store, engine.outage),
        engine.clock,
        settings,
        engine.server_id,
    )


def task_hint(number: int, namespace: str = NAMESPACE) -> Hint:
    return Hint(EventKind.TASK, namespace, str(number), number, "PENDING", QUEUE)


@pytest.mark.parametrize("dialect", ["sqlite"])
async def test_a_slow_subscriber_is_reset_once_and_goes_on(engine: Engine) -> None:
    feed = feed_of(engine, 10)
    with feed.subscribe(HERE) as slow, feed.subscribe(HERE) as quick:
        for number in range(25):
            feed.hear([task_hint(number)], frozenset())
            assert [each[2] for each in said(await quick.next(NOW_MS))] == [number]
        assert len(feed) == 10
        (page,) = await slow.next(NOW_MS) or []
        assert (page.reason, page.missed) == ("slow", ALL_KINDS)
        feed.hear([task_hint(99)], frozenset())
        assert [each[2] for each in said(await slow.next(NOW_MS))] == [99]
        assert await slow.next(NOW_MS) == []
    feed.close()


@pytest.mark.parametrize("dialect", ["sqlite"])
async def test_who_waits_in_a_quiet_namespace_is_not_slow(engine: Engine) -> None:
    feed = feed_of(engine, 10)
    with feed.subscribe(HERE) as quiet:
        assert await quiet.next(NOW_MS) == []
        for number in range(50):
            feed.hear([task_hint(number, OTHER_NAMESPACE)], frozenset())
        assert await quiet.next(NOW_MS) == []
        feed.hear([task_hint(7)], frozenset())
        assert [each[2] for each in said(await quiet.next(NOW_MS))] == [7]
        # Its position has moved past the others: it can still be continued.
        with feed.subscribe(HERE, quiet.position) as again:
            assert await again.next(NOW_MS) == []
    feed.close()


@pytest.mark.parametrize("dialect", ["sqlite"])
async def test_a_write_holds_a_bounded_number_of_hints(world: World, engine: Engine) -> None:
    with engine.events.subscribe(HERE) as subscription:
        for _ in range(3):
            await world.add(engine, 900)
        sizes = [len(said(await subscription.next(NOW_MS))) for _ in range(3)]
    assert sizes == [1_800, 900, 0]


async def test_the_end_of_the_server_ends_every_subscription(world: World, engine: Engine) -> None:
    with engine.events.subscribe(HERE) as subscription:
        waiting = asyncio.create_task(_until_over(subscription))
        await asyncio.sleep(0)
        await world.stop(engine)
        await asyncio.wait_for(waiting, LONG_MS / 1000)
        with engine.events.subscribe(HERE) as late:
            assert await late.next(LONG_MS) is None


async def _until_over(subscription: Subscription) -> None:
    while await subscription.next(LONG_MS) is not None:
        """Whatever comes before the end."""


# -- Several servers


@pytest.mark.parametrize("dialect", ["postgres"])
async def test_what_another_server_changes_is_told_here(world: World) -> None:
    here, there = await world.start(), await world.start()
    with here.events.subscribe(HERE) as subscription:
        page = await reset(subscription)
        assert (page.reason, page.missed) == ("missed", ALL_KINDS)
        worker_id = await world.worker(there)
        (task_id,) = await world.add(there)
        pages = await hints_until(subscription, 1)
        (task,) = await world.claim(there, worker_id)
        pages += await hints_until(subscription, 1)
        await world.finish(there, worker_id, task)
        pages += await hints_until(subscription, 1)
        stored = await world.task(task_id)
        assert said(pages)[0][3] == "PENDING"
        assert said(pages)[-1] == ("task", task_id, stored.version, "SUCCEEDED")
        assert [each[1] for each in said(pages, EventKind.WORKER)] == [worker_id]


@pytest.mark.parametrize("dialect", ["postgres"])
async def test_too_many_changes_of_another_server_are_one_reset_of_their_kind(world: World) -> None:
    here, there = await world.start(events_reset_ms=50), await world.start()
    with here.events.subscribe(HERE) as subscription:
        await reset(subscription)
        await world.worker(there)
        await world.add(there, EVENTS_TOLD_MAX)
        page = await reset(subscription)
    assert (page.reason, page.missed) == ("missed", {EventKind.TASK})


@pytest.mark.parametrize("dialect", ["postgres"])
async def test_a_server_that_cannot_listen_says_so_again_and_again(world: World) -> None:
    engine = await world.start(pooled=True, events_reset_ms=50)
    with engine.events.subscribe(HERE) as subscription:
        assert (await reset(subscription)).reason == "missed"
        (task_id,) = await world.add(engine)
        assert [each[1] for each in said(await hints_until(subscription, 1))] == [task_id]
        assert (await reset(subscription)).missed == ALL_KINDS


@pytest.mark.parametrize("dialect", ["postgres"])
async def test_others_are_told_of_each_thing_only_the_last_word(world: World) -> None:
    here, there = await world.start(), await world.start()
    told: list[str] = []
    here.store.listen(told.append)
    worker_id = await world.worker(there)
    await here.store.notify("want events")
    (task_id,) = await world.add(there)
    (task,) = await world.claim(there, worker_id)
    await there.submit(ConfirmTasks(namespace=NAMESPACE, worker_id=worker_id, items=(ref(task),)))
    await eventually(lambda: any("RUNNING" in each for each in told))
    lines = [line for each in told for line in each.splitlines() if task_id in line]
    versions = [hint.version for hint in heard("\n".join(lines)).events]
    assert versions == sorted(set(versions))
    assert versions[-1] == (await world.task(task_id)).version


def test_hints_are_packed_and_heard() -> None:
    hint = task_hint(1)
    (message,) = pack(
        {HintKind.EVENT: {change_hint.text_of(hint), "worker"}, HintKind.WANT: {"events"}}
    )
    found = heard(message)
    assert found.events == [hint]
    assert found.missed_events == {EventKind.WORKER}
    assert (found.is_event_wanted, found.is_result_wanted) == (True, False)
    assert heard("event").missed_events == ALL_KINDS
    assert heard("event nonsense a b").missed_events == set()
