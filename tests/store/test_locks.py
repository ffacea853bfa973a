"""Pairs of hot statements on two connections of PostgreSQL, in each order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import asyncpg
import pytest
from msgspec.structs import replace

from tenure.core.queue import Queue
from tenure.core.task.record import Line, Task, TaskState
from tenure.core.worker.lease import Beat, Lease
from tenure.core.worker.record import EndReason, Worker, WorkerStatus
from tenure.store.failure import FenceLost, Refused
from tenure.store.postgres import PostgresStore
from tenure.store.table import codec
from tenure.store.table import idempotency as idempotency_table
from tenure.store.table import lease as lease_table
from tenure.store.table import queue as queue_table
from tenure.store.table import task as task_table
from tenure.store.table import worker as worker_table
from tenure.store.table.idempotency import Key
from tenure.store.transaction import Tx
from tests.bounds import WAIT_S
from tests.polling import eventually
from tests.store.rows import (
    NAMESPACE,
    NOW,
    QUEUE,
    add_workers,
    demand,
    dispatched_from,
    finished_from,
    held,
    history,
    insert,
    lease,
    live,
    pending,
    server_id,
    stored_lease,
    stored_worker,
    task_id,
    worker,
    worker_id,
)

T = TypeVar("T")
U = TypeVar("U")
Act = Callable[[Tx], Awaitable[T]]
KEY = (NAMESPACE, task_id(1))
BEAT = Beat(token=1, server_id=server_id(2))


class Two:
    """Two servers on one database, whose transactions a test lets overlap."""

    def __init__(self, first: PostgresStore, second: PostgresStore, watcher: Any) -> None:
        self.first = first
        self.second = second
        self._watcher = watcher

    async def overlap(
        self, first: Act[T], second: Act[U], *, second_waits: bool
    ) -> tuple[T, U | Exception]:
        """Run ``first``, then ``second`` before the first commits; return what each gave."""
        acted, go = asyncio.Event(), asyncio.Event()

        async def pausing(tx: Tx) -> T:
            result = await first(tx)
            acted.set()
            await go.wait()
            return result

        async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
            one = group.create_task(self.first.transaction(pausing))
            await acted.wait()
            two = group.create_task(_outcome(self.second.transaction(second)))
            if second_waits:
                await self._until_somebody_waits()
                assert not two.done()
            else:
                await two
            go.set()
        return one.result(), two.result()

    async def _until_somebody_waits(self) -> None:
        sql = (
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"
        )
        await eventually(lambda: self._watcher.fetchval(sql), "somebody who waits")


async def _outcome(result: Awaitable[T]) -> T | Exception:
    try:
        return await result
    except Exception as error:  # noqa: BLE001 (the test looks at it)
        return error


@pytest.fixture
async def two(dsn: str) -> AsyncIterator[Two]:
    stores = [PostgresStore(dsn) for _ in range(2)]
    for store in stores:
        await store.open()
    watcher = await asyncpg.connect(dsn)
    yield Two(stores[0], stores[1], watcher)
    await watcher.close()
    for store in stores:
        await store.close()


def hand_out(amount: int = 1) -> Act[list[Worker]]:
    """Return a hand-out as the engine does it; it gives the receivers as it saw them."""

    async def act(tx: Tx) -> list[Worker]:
        receivers = await worker_table.share_workers(tx, [worker_id(1)])
        workers = [each.worker for each in receivers]
        if all(each.status is WorkerStatus.ONLINE for each in workers):
            claimed = await task_table.claim_tasks(tx, [demand(amount=amount)])
            await task_table.update_tasks(tx, [dispatched_from(task) for task in claimed])
        return workers

    return act


async def drain(tx: Tx) -> list[Task]:
    """Drain the worker; give what it holds."""
    (found,) = await worker_table.lock_workers(tx, [worker_id(1)])
    draining = replace(found, status=WorkerStatus.DRAINING, drain_at_ms=NOW)
    await worker_table.update_workers(tx, [draining])
    return await task_table.load_held(tx, found, amount=10)


async def expire(tx: Tx) -> list[Task]:
    """Judge the worker's lease as over; give what it holds."""
    (found,) = await worker_table.lock_workers(tx, [worker_id(1)])
    if await lease_table.lock_leases(tx, [worker_id(1)]):
        await lease_table.drop_leases(tx, [worker_id(1)])
        ended = replace(
            found,
            status=WorkerStatus.OFFLINE,
            end_reason=EndReason.LEASE_EXPIRED,
            ended_at_ms=NOW,
            release_pending=True,
        )
        await worker_table.update_workers(tx, [ended])
    return await task_table.load_held(tx, found, amount=10)


async def write_alone(tx: Tx, name: str, row: tuple[object, ...], slots: int = 0) -> int:
    """Hand out by one statement, fenced by the worker; give how many tasks were written."""
    now_ms = await tx.now_ms()
    fence = (0, lease(1).lease_ms, 0, slots, now_ms - 1_000, now_ms + 1_000)
    return len(await tx.one(name, *row, *fence))


async def enqueue_alone(tx: Tx) -> int:
    return await write_alone(tx, "insert_alone", codec.task_inserted(held(1)))


async def hand_out_alone(tx: Tx, number: int = 1, slots: int = 0) -> int:
    """Hand out the first version of the task, as a server does that has looked at it."""
    handed = codec.task_updated(dispatched_from(pending(number)))
    return await write_alone(tx, "update_alone", handed, slots)


async def count_and_hand_out(tx: Tx) -> int:
    """Hand out one task to a worker that holds none; give how many it held."""
    (receiver,) = await worker_table.lock_receivers(tx, [worker_id(1)])
    if not receiver.held_count:
        claimed = await task_table.claim_tasks(tx, [demand(amount=1)])
        await task_table.update_tasks(tx, [dispatched_from(task) for task in claimed])
    assert receiver.held_count is not None
    return receiver.held_count


async def claim(tx: Tx) -> list[str]:
    return [task.id for task in await task_table.claim_tasks(tx, [demand()])]


def load_and(change: Callable[[Task], Task]) -> Act[list[Task]]:
    """Return a command that locks the task, looks at it and changes it; it gives what it saw."""

    async def act(tx: Tx) -> list[Task]:
        seen = await task_table.load_tasks(tx, [KEY])
        await task_table.update_tasks(tx, [change(task) for task in seen])
        return seen

    return act


def cancelling(task: Task) -> Task:
    state = TaskState.CANCELLING if task.worker_id else TaskState.PAUSED
    return replace(task, state=state, line=Line.NONE)


def requeued(task: Task) -> Task:
    return replace(task, state=TaskState.PENDING, line=Line.RETURNED, worker_id=None)


async def complete(tx: Tx) -> None:
    """Complete the first version of the task, as a server does that remembers its copy."""
    await task_table.finish_tasks(tx, [finished_from(held(1))])


async def requeue(tx: Tx) -> None:
    await task_table.update_tasks(tx, [requeued(held(1))])


async def test_a_claim_passes_over_a_task_that_is_being_cancelled(two: Two) -> None:
    await insert(two.first, pending(1), pending(2))
    _, claimed = await two.overlap(load_and(cancelling), claim, second_waits=False)
    assert claimed == [task_id(2)]


async def test_a_cancel_waits_for_a_claim_and_sees_what_it_did(two: Two) -> None:
    await insert(two.first, pending(1))
    await add_workers(two.first, [worker(1)], [lease(1)])
    _, seen = await two.overlap(hand_out(), load_and(cancelling), second_waits=True)
    assert isinstance(seen, list)
    assert [(task.state, task.version) for task in seen] == [(TaskState.DISPATCHED, 1)]
    (stored,) = await live(two.first, 1)
    assert stored.state is TaskState.CANCELLING


async def test_two_claims_share_the_line_without_waiting(two: Two) -> None:
    await insert(two.first, *(pending(number) for number in range(1, 5)))
    asked = [demand(amount=2)]

    async def take_two(tx: Tx) -> list[str]:
        return [task.id for task in await task_table.claim_tasks(tx, asked)]

    first, second = await two.overlap(take_two, take_two, second_waits=False)
    assert first == [task_id(1), task_id(2)]
    assert second == [task_id(3), task_id(4)]


async def test_two_servers_look_at_different_due_tasks(two: Two) -> None:
    await insert(two.first, *(pending(number, due_at_ms=NOW) for number in (1, 2)))

    async def due(amount: int, tx: Tx) -> list[str]:
        return [task.id for task in await task_table.load_due(tx, now_ms=NOW, amount=amount)]

    first, second = await two.overlap(
        lambda tx: due(1, tx), lambda tx: due(10, tx), second_waits=False
    )
    assert isinstance(second, list)
    assert sorted(first + second) == [task_id(1), task_id(2)]


async def test_a_drain_waits_for_a_hand_out_and_finds_its_task(two: Two) -> None:
    await insert(two.first, pending(1))
    await add_workers(two.first, [worker(1)], [lease(1)])
    _, found = await two.overlap(hand_out(), drain, second_waits=True)
    assert isinstance(found, list)
    assert [task.id for task in found] == [task_id(1)]


async def test_a_hand_out_that_counts_waits_for_another_and_counts_what_it_did(two: Two) -> None:
    await insert(two.first, pending(1), pending(2))
    await add_workers(two.first, [worker(1)], [lease(1)])
    counts = await two.overlap(count_and_hand_out, count_and_hand_out, second_waits=True)
    assert counts == (0, 1)
    assert [task.state for task in await live(two.first, 1, 2)] == [
        TaskState.DISPATCHED,
        TaskState.PENDING,
    ]


async def test_a_hand_out_that_counts_waits_for_one_of_a_session(two: Two) -> None:
    await insert(two.first, pending(1), pending(2))
    await add_workers(two.first, [worker(1)], [lease(1)])
    _, count = await two.overlap(hand_out(), count_and_hand_out, second_waits=True)
    assert count == 1


async def test_a_hand_out_by_one_statement_that_counts_does_not_wait_for_another(two: Two) -> None:
    await insert(two.first, pending(1), pending(2))
    await add_workers(two.first, [worker(1)], [lease(1)])
    _, written = await two.overlap(
        count_and_hand_out, lambda tx: hand_out_alone(tx, 2, slots=1), second_waits=False
    )
    assert written == 0


@pytest.mark.parametrize(("slots", "written"), [(1, 0), (2, 1)])
async def test_a_hand_out_by_one_statement_counts_what_the_worker_holds(
    two: Two, slots: int, written: int
) -> None:
    await insert(two.first, held(1), pending(2))
    await add_workers(two.first, [worker(1)], [lease(1)])
    assert await two.first.transaction(lambda tx: hand_out_alone(tx, 2, slots)) == written


async def test_a_hand_out_waits_for_a_drain_and_sees_it(two: Two) -> None:
    await insert(two.first, pending(1))
    await add_workers(two.first, [worker(1)], [lease(1)])
    found, seen = await two.overlap(drain, hand_out(), second_waits=True)
    assert found == []
    assert isinstance(seen, list)
    assert [each.status for each in seen] == [WorkerStatus.DRAINING]
    assert await live(two.first, 1) == [pending(1)]


@pytest.mark.parametrize("act", [enqueue_alone, hand_out_alone])
async def test_a_drain_waits_for_a_hand_out_by_one_statement_and_finds_its_task(
    two: Two, act: Act[int]
) -> None:
    await add_workers(two.first, [worker(1)], [lease(1)])
    if act is hand_out_alone:
        await insert(two.first, pending(1))
    written, found = await two.overlap(act, drain, second_waits=True)
    assert written == 1
    assert isinstance(found, list)
    assert [task.id for task in found] == [task_id(1)]


@pytest.mark.parametrize("act", [enqueue_alone, hand_out_alone])
async def test_a_hand_out_by_one_statement_does_not_wait_for_a_drain(
    two: Two, act: Act[int]
) -> None:
    await add_workers(two.first, [worker(1)], [lease(1)])
    before = [pending(1)] if act is hand_out_alone else []
    await insert(two.first, *before)
    _, written = await two.overlap(drain, act, second_waits=False)
    assert written == 0
    assert await live(two.first, 1) == before


async def test_a_hand_out_by_one_statement_loses_against_a_cancel_it_did_not_see(two: Two) -> None:
    await add_workers(two.first, [worker(1)], [lease(1)])
    await insert(two.first, pending(1))
    _, written = await two.overlap(load_and(cancelling), hand_out_alone, second_waits=True)
    assert written == 0
    (stored,) = await live(two.first, 1)
    assert stored.state is TaskState.PAUSED


async def test_two_hand_outs_to_one_worker_do_not_wait_for_each_other(two: Two) -> None:
    await insert(two.first, pending(1), pending(2))
    await add_workers(two.first, [worker(1)], [lease(1)])
    await two.overlap(hand_out(), hand_out(), second_waits=False)
    tasks = await live(two.first, 1, 2)
    assert [task.worker_id for task in tasks] == [worker_id(1), worker_id(1)]


async def test_an_expiry_waits_for_a_hand_out_and_finds_its_task(two: Two) -> None:
    await insert(two.first, pending(1))
    await add_workers(two.first, [worker(1)], [lease(1)])
    _, found = await two.overlap(hand_out(), expire, second_waits=True)
    assert isinstance(found, list)
    assert [task.id for task in found] == [task_id(1)]
    assert (await stored_worker(two.first, 1)).status is WorkerStatus.OFFLINE


async def test_a_hand_out_waits_for_an_expiry_and_sees_it(two: Two) -> None:
    await insert(two.first, pending(1))
    await add_workers(two.first, [worker(1)], [lease(1)])
    _, seen = await two.overlap(expire, hand_out(), second_waits=True)
    assert isinstance(seen, list)
    assert [each.status for each in seen] == [WorkerStatus.OFFLINE]
    assert await live(two.first, 1) == [pending(1)]


async def test_two_servers_judge_one_worker_once(two: Two) -> None:
    await add_workers(two.first, [worker(1)], [lease(1)])
    await two.overlap(expire, expire, second_waits=True)
    assert (await stored_worker(two.first, 1)).version == 1


async def test_a_completion_that_comes_behind_a_requeue_is_fenced(two: Two) -> None:
    await insert(two.first, held(1))
    _, outcome = await two.overlap(requeue, complete, second_waits=True)
    assert isinstance(outcome, FenceLost)
    (stored,) = await live(two.first, 1)
    assert stored.state is TaskState.PENDING
    assert await history(two.first, 1) == []


async def test_a_requeue_that_comes_behind_a_completion_is_fenced(two: Two) -> None:
    await insert(two.first, held(1))
    _, outcome = await two.overlap(complete, requeue, second_waits=True)
    assert isinstance(outcome, FenceLost)
    assert await live(two.first, 1) == []
    assert len(await history(two.first, 1)) == 1


async def test_two_requeues_put_a_task_back_once(two: Two) -> None:
    await insert(two.first, held(1))
    _, outcome = await two.overlap(requeue, requeue, second_waits=True)
    assert isinstance(outcome, FenceLost)
    (stored,) = await live(two.first, 1)
    assert stored.version == 1


async def test_two_releases_of_one_worker_put_its_tasks_back_once(two: Two) -> None:
    await insert(two.first, held(1), held(2))

    async def release(tx: Tx) -> int:
        found = await task_table.load_held(tx, worker(1), amount=10)
        await task_table.update_tasks(tx, [requeued(task) for task in found])
        return len(found)

    first, second = await two.overlap(release, release, second_waits=True)
    assert (first, second) == (2, 0)
    assert [task.version for task in await live(two.first, 1, 2)] == [1, 1]


async def test_a_completion_that_comes_behind_a_cancel_is_fenced_and_then_sees_it(two: Two) -> None:
    await insert(two.first, held(1))
    _, outcome = await two.overlap(load_and(cancelling), complete, second_waits=True)
    assert isinstance(outcome, FenceLost)

    async def complete_again(tx: Tx) -> TaskState:
        (task,) = await task_table.load_tasks(tx, [KEY])
        await task_table.finish_tasks(tx, [finished_from(task)])
        return task.state

    assert await two.second.transaction(complete_again) is TaskState.CANCELLING
    assert len(await history(two.first, 1)) == 1


async def test_a_cancel_that_comes_behind_a_completion_finds_no_live_task(two: Two) -> None:
    await insert(two.first, held(1))
    _, seen = await two.overlap(complete, load_and(cancelling), second_waits=True)
    assert seen == []
    (finished,) = await history(two.first, 1)
    assert finished.state is TaskState.SUCCEEDED


async def test_of_two_equal_completions_one_is_accepted(two: Two) -> None:
    await insert(two.first, held(1))
    _, outcome = await two.overlap(complete, complete, second_waits=True)
    assert isinstance(outcome, FenceLost)
    assert len(await history(two.first, 1)) == 1


async def test_a_completion_goes_on_when_the_other_one_did_not_commit(two: Two) -> None:
    await insert(two.first, held(1))

    class Undone(Exception):
        pass

    acted, go = asyncio.Event(), asyncio.Event()

    async def undone(tx: Tx) -> None:
        await complete(tx)
        acted.set()
        await go.wait()
        raise Undone

    first = asyncio.create_task(_outcome(two.first.transaction(undone)))
    await acted.wait()
    second = asyncio.create_task(two.second.transaction(complete))
    go.set()
    assert isinstance(await first, Undone)
    await second
    assert len(await history(two.first, 1)) == 1


async def beat(tx: Tx) -> list[Lease]:
    return await lease_table.beat_leases(tx, [(worker_id(1), NAMESPACE, BEAT)], NOW + 1)


async def judge(tx: Tx) -> set[str]:
    """Delete the lease if it can be locked; tell whose is gone."""
    locked = {each.worker_id for each in await lease_table.lock_leases(tx, [worker_id(1)])}
    await lease_table.drop_leases(tx, locked)
    return locked


async def resume(tx: Tx) -> None:
    await lease_table.resume_leases(tx, [lease(1, server_id=server_id(3))])


async def test_an_expiry_leaves_a_lease_alone_that_a_heartbeat_is_renewing(two: Two) -> None:
    await add_workers(two.first, [worker(1)], [lease(1)])
    renewed, gone = await two.overlap(beat, judge, second_waits=False)
    assert gone == set()
    assert [await stored_lease(two.first, 1)] == renewed


async def test_a_heartbeat_waits_for_an_expiry_and_finds_nothing(two: Two) -> None:
    await add_workers(two.first, [worker(1)], [lease(1)])
    gone, renewed = await two.overlap(judge, beat, second_waits=True)
    assert gone == {worker_id(1)}
    assert renewed == []
    assert await stored_lease(two.first, 1) is None


async def test_an_expiry_beside_a_new_session_leaves_the_suspect_alone(two: Two) -> None:
    await add_workers(two.first, [worker(1)], [lease(1)])
    suspect = lease(1, suspect_until_ms=NOW)
    await two.first.transaction(lambda tx: lease_table.suspect_leases(tx, [suspect]))
    _, gone = await two.overlap(resume, judge, second_waits=False)
    assert gone == set()
    assert await stored_lease(two.first, 1) == lease(1, server_id=server_id(3))


async def test_a_heartbeat_behind_a_new_session_still_counts(two: Two) -> None:
    await add_workers(two.first, [worker(1)], [lease(1)])
    _, renewed = await two.overlap(resume, beat, second_waits=True)
    assert isinstance(renewed, list)
    assert [each.token for each in renewed] == [2]


async def test_of_two_equal_heartbeats_one_counts(two: Two) -> None:
    await add_workers(two.first, [worker(1)], [lease(1)])
    first, second = await two.overlap(beat, beat, second_waits=True)
    assert [each.token for each in first] == [2]
    assert second == []


async def test_a_heartbeat_waits_neither_for_a_drain_nor_for_a_hand_out(two: Two) -> None:
    await insert(two.first, pending(1))
    await add_workers(two.first, [worker(1)], [lease(1)])
    await two.overlap(hand_out(), beat, second_waits=False)
    second = [(worker_id(1), NAMESPACE, Beat(token=2, server_id=server_id(2)))]
    _, renewed = await two.overlap(
        drain, lambda tx: lease_table.beat_leases(tx, second, NOW + 2), second_waits=False
    )
    assert isinstance(renewed, list)
    assert [each.token for each in renewed] == [3]


def register(record: Worker) -> Act[list[str]]:
    """Return a registration; it gives what it found of its key or name."""

    async def act(tx: Tx) -> list[str]:
        found = await worker_table.find_workers(
            tx, namespace=NAMESPACE, instance_key=record.instance_key, name=record.name
        )
        if not found:
            await worker_table.insert_workers(tx, [record])
        return [each.id for each in found]

    return act


@pytest.mark.parametrize(
    "rival",
    [worker(2, instance_key="key-1"), worker(2, name="mailer")],
    ids=["same key", "same name"],
)
async def test_of_two_equal_registrations_the_second_waits_and_then_finds_the_first(
    two: Two, rival: Worker
) -> None:
    first = register(worker(1, name="mailer"))
    _, outcome = await two.overlap(first, register(rival), second_waits=True)
    assert isinstance(outcome, Refused)
    assert await two.second.transaction(register(rival)) == [worker_id(1)]


async def test_of_two_enqueues_with_one_key_the_second_waits_and_then_finds_the_first(
    two: Two,
) -> None:
    def enqueue(number: int) -> Act[list[str]]:
        async def act(tx: Tx) -> list[str]:
            found = await idempotency_table.lock_keys(tx, [(NAMESPACE, "order")])
            if not found:
                key = Key(NAMESPACE, "order", task_id(number), b"", None, is_task_live=True)
                await idempotency_table.insert_keys(tx, [key])
                await task_table.insert_tasks(tx, [pending(number)])
            return [each.task_id for each in found]

        return act

    _, outcome = await two.overlap(enqueue(1), enqueue(2), second_waits=True)
    assert isinstance(outcome, Refused)
    assert await two.second.transaction(enqueue(2)) == [task_id(1)]
    assert await live(two.first, 1, 2) == [pending(1)]


async def test_a_queue_with_a_limit_is_counted_by_one_server_at_a_time(two: Two) -> None:
    await insert(two.first, pending(1), pending(2))
    await add_workers(two.first, [worker(1)], [lease(1)])
    limit = Queue(NAMESPACE, QUEUE, concurrency_max=1)
    await two.first.transaction(lambda tx: queue_table.save_queues(tx, [limit]))

    async def hand_out_limited(tx: Tx) -> int:
        await queue_table.lock_queues(tx, [(NAMESPACE, QUEUE)])
        counts = await task_table.count_held(tx, [(NAMESPACE, QUEUE)])
        if counts[NAMESPACE, QUEUE] < limit.concurrency_max:
            await hand_out()(tx)
        return counts[NAMESPACE, QUEUE]

    first, second = await two.overlap(hand_out_limited, hand_out_limited, second_waits=True)
    assert (first, second) == (0, 1)
