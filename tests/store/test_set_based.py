"""Statements that change or choose rows by themselves, compared with the core on generated rows.

SQL may be faster than the core, never different. The list of such statements: ``beat_leases``,
``suspect_leases``, ``resume_leases``, ``fail_leases``, ``lock_leases``, ``clamp_leases``,
``load_lapsed`` and ``claim_tasks``.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tenure.core import assignment
from tenure.core.task.record import Line, Task
from tenure.core.worker import judge as judge_rules
from tenure.core.worker import lease as rules
from tenure.core.worker.lease import Beat, CallFailed, Lease, SessionLost, SessionResumed
from tenure.core.worker.record import WorkerMode
from tenure.errors import Rejection
from tenure.store.table import lease as lease_table
from tenure.store.table import task as task_table
from tenure.store.table.task import Demand
from tenure.store.transaction import Store, Tx
from tests.store.rows import (
    HIGHEST_ID,
    LOWEST_ID,
    NAMESPACE,
    NOW,
    demand,
    insert,
    lease,
    pending,
    server_id,
    task_id,
)

SEEDS = range(6)
WORKERS = 25
ROUNDS = 12
Model = dict[str, Lease]


async def stored(store: Store, model: Model) -> Model:
    found = await store.read(lambda tx: lease_table.read_leases(tx, model))
    return {each.worker_id: each for each in found}


def some(random_: random.Random, model: Model) -> list[Lease]:
    """Return some of the leases as an earlier reader may have seen them: each at most once."""
    chosen = random_.sample(sorted(model), k=random_.randint(0, len(model)))
    return [model[each] for each in chosen]


def draw_beat(random_: random.Random, token: int) -> Beat:
    return Beat(
        token=token + random_.choice((0, 0, 0, -1, 1)),
        server_id=server_id(random_.randint(1, 3)),
        lease_ms=random_.choice((0, 0, 10_000, 600_000)),
        total_completed=random_.choice((-1, 0, 5, 50, 2**40)),
        total_failed=random_.choice((-1, 0, 5, 50)),
        completed_delta=random_.randint(0, 9),
        failed_delta=random_.randint(0, 9),
        active_count=random_.randint(0, 9),
        loop_lag_ms=random_.randint(0, 9),
        stuck_count=random_.randint(0, 9),
    )


async def beat(store: Store, random_: random.Random, model: Model, now_ms: int) -> None:
    beats = [(each, draw_beat(random_, each.token)) for each in some(random_, model)]
    expected = {}
    for each, event in beats:
        after = rules.decide(each, event, now_ms)
        if not isinstance(after, Rejection):
            expected[each.worker_id] = after
    given = [(each.worker_id, NAMESPACE, event) for each, event in beats]
    renewed = await store.transaction(lambda tx: lease_table.beat_leases(tx, given, now_ms))
    assert {each.worker_id: each for each in renewed} == expected
    model |= expected


async def suspect(store: Store, random_: random.Random, model: Model, now_ms: int) -> None:
    """A worker that was heard since (another token) is not suspected."""
    changed = []
    expected = {}
    for each in some(random_, model):
        after = rules.decide(each, SessionLost(grace_ms=random_.randint(1, 5_000)), now_ms)
        assert isinstance(after, Lease)
        was_heard = random_.random() < 0.3
        changed.append(replace(after, token=after.token + was_heard))
        if not was_heard:
            expected[each.worker_id] = after
    told = await store.transaction(lambda tx: lease_table.suspect_leases(tx, changed))
    assert told == expected.keys()
    model |= expected


async def resume(store: Store, random_: random.Random, model: Model, now_ms: int) -> None:
    event = SessionResumed(server_id=server_id(random_.randint(1, 3)))
    changed = {}
    for each in some(random_, model):
        after = rules.decide(each, event, now_ms)
        assert isinstance(after, Lease)
        changed[each.worker_id] = after
    await store.transaction(lambda tx: lease_table.resume_leases(tx, list(changed.values())))
    model |= changed


async def fail(store: Store, random_: random.Random, model: Model, now_ms: int) -> None:
    changed = {}
    for each in some(random_, model):
        after = rules.decide(each, CallFailed(), now_ms)
        assert isinstance(after, Lease)
        changed[each.worker_id] = after
    await store.transaction(lambda tx: lease_table.fail_leases(tx, changed))
    model |= changed


async def clamp(store: Store, random_: random.Random, model: Model, now_ms: int) -> None:
    """After a step back of the clock no lease lasts longer than it was granted."""
    back_ms = now_ms - random_.choice((0, 5_000, 500_000))
    await store.transaction(lambda tx: tx.one("clamp_leases", back_ms))
    for key, each in model.items():
        until_ms = min(each.lease_until_ms, back_ms + each.lease_ms)
        model[key] = replace(each, lease_until_ms=until_ms)


async def judge(store: Store, random_: random.Random, model: Model, now_ms: int) -> None:
    """A judgement locks rows as they are now, and deletes exactly those that it names."""
    del now_ms
    chosen = random_.sample(sorted(model), k=min(4, len(model)))
    gone = {key for key in chosen if random_.random() < 0.3}

    async def body(tx: Tx) -> list[Lease]:
        locked = await lease_table.lock_leases(tx, chosen)
        await lease_table.drop_leases(tx, gone)
        return locked

    locked = await store.transaction(body)
    assert {each.worker_id: each for each in locked} == {key: model[key] for key in chosen}
    for key in gone:
        del model[key]


STEPS: tuple[Callable[..., object], ...] = (beat, beat, suspect, resume, fail, clamp, judge)


@pytest.mark.parametrize("seed", SEEDS)
async def test_statements_on_leases_do_what_the_core_decides(store: Store, seed: int) -> None:
    random_ = random.Random(seed)
    model: Model = {}
    for number in range(1, WORKERS + 1):
        each = lease(
            number,
            token=random_.randint(1, 9),
            lease_ms=random_.choice((200, 15_000)),
            lease_until_ms=NOW + random_.randint(-10, 10),
        )
        model[each.worker_id] = each
    leases = list(model.values())
    await store.transaction(lambda tx: lease_table.insert_leases(tx, leases))
    for round_ in range(ROUNDS):
        step = random_.choice(STEPS)
        # Now and then the clock goes back.
        now_ms = NOW + round_ * 1_000 - random_.choice((0, 0, 5_000))
        done = step(store, random_, model, now_ms)
        await done  # type: ignore[misc]  # each step is a coroutine function
        assert await stored(store, model) == model, step


@pytest.mark.parametrize("seed", SEEDS)
async def test_the_scan_for_lapsed_leases_finds_every_lease_that_the_core_would_end(
    store: Store, seed: int
) -> None:
    random_ = random.Random(seed)
    leases = [lease(number, lease_until_ms=NOW + random_.randint(-3, 3)) for number in range(1, 61)]
    suspects = [
        replace(each, suspect_until_ms=NOW + random_.randint(-3, 3))
        for each in random_.sample(leases, k=30)
    ]
    await store.transaction(lambda tx: lease_table.insert_leases(tx, leases))
    await store.transaction(lambda tx: lease_table.suspect_leases(tx, suspects))
    rows = {each.worker_id: each for each in [*leases, *suspects]}
    over = {
        each.worker_id
        for each in rows.values()
        if judge_rules.judge(
            each, mode=WorkerMode.SESSION, now_ms=NOW, sighted_ms=10**9, server=None
        )
    }
    lapsed = await store.transaction(lambda tx: lease_table.load_lapsed(tx, now_ms=NOW, amount=100))
    assert {each.lease.worker_id for each in lapsed} == over
    assert {each.lease.worker_id: each.lease for each in lapsed} == {key: rows[key] for key in over}


def head(tasks: list[Task], asked: Demand) -> list[str]:
    """Return what a probe takes, by the order of the core."""
    mark = (asked.priority_min, asked.mark_run_at_ms, asked.mark_id)
    fitting = [
        task
        for task in tasks
        if (task.namespace, task.queue, task.type) == (asked.namespace, asked.queue, asked.type)
        and task.line == asked.line
        and assignment.order(task) >= mark
        and task.priority <= asked.priority_max
    ]
    return [task.id for task in sorted(fitting, key=assignment.order)[: asked.amount]]


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_claim_takes_what_the_order_of_the_core_puts_first(store: Store, seed: int) -> None:
    random_ = random.Random(seed)
    tasks = [
        pending(
            number,
            type=random_.choice(("mail", "sms")),
            queue=random_.choice(("default", "other")),
            line=random_.choice((Line.FRESH, Line.FRESH, Line.RETURNED, Line.NONE)),
            priority=random_.randint(0, 9),
            run_at_ms=NOW + random_.randint(0, 5),
        )
        for number in range(1, 151)
    ]
    await insert(store, *random_.sample(tasks, k=len(tasks)))
    for _ in range(20):
        first = random_.randint(0, 9)
        asked = demand(
            type=random_.choice(("mail", "sms", "none")),
            queue=random_.choice(("default", "other")),
            line=random_.choice((Line.FRESH, Line.RETURNED)),
            priority_min=first,
            priority_max=random_.randint(first, 9),
            mark_run_at_ms=random_.choice((0, NOW + random_.randint(0, 5))),
            mark_id=random_.choice((LOWEST_ID, task_id(random_.randint(1, 150)), HIGHEST_ID)),
            amount=random_.randint(0, 30),
        )
        found = await store.transaction(lambda tx, asked=asked: task_table.claim_tasks(tx, [asked]))  # type: ignore[misc]  # bound early
        assert [task.id for task in found] == head(tasks, asked)
