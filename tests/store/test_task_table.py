"""Tasks as rows: what is written comes back, and a write on an old copy changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from tenure.core.limits import CLAIM_INPUT_BYTES_MAX
from tenure.core.run.record import RunProgress, Wait
from tenure.core.task.attempt import Outcome
from tenure.core.task.record import (
    NO_PROGRESS,
    AttemptProgress,
    Line,
    Reason,
    Spec,
    Task,
    TaskKind,
    TaskState,
)
from tenure.core.task.retry import RetryPolicy
from tenure.store.failure import FenceLost, Refused
from tenure.store.table import listing
from tenure.store.table import task as task_table
from tenure.store.transaction import Store, Tx
from tests.store.rows import (
    FAULT,
    NAMESPACE,
    NOW,
    QUEUE,
    by_id,
    demand,
    dispatched_from,
    ended_attempt,
    finished_from,
    held,
    history,
    insert,
    live,
    pending,
    task_id,
    worker,
    worker_id,
)

FULL_SPEC = Spec(
    kind=TaskKind.WORKFLOW,
    schedule_to_start_ms=1,
    schedule_to_close_ms=2,
    start_to_close_ms=3,
    heartbeat_timeout_ms=4,
    heartbeat_interval_ms=5,
    cancel_grace_ms=6,
    delivery_timeout_ms=7,
    close_at_ms=8,
    retry=RetryPolicy(9, 1.5, 10, 11, ("TypeError",)),
    encoding="json",
    idempotency_key="order-1",
    resources={"gpu": "1"},
    retry_of=task_id(92),
)
FULL_RUN = RunProgress(
    begun_at_ms=1,
    generation=2,
    seen=3,
    wake_at_ms=4,
    wake_key="2/sleep#2",
    wake_index=5,
    patience_n=6,
    patience_ms=7,
    news_at_ms=8,
    home_worker_id=task_id(92),
    park=FAULT,
    park_count=9,
    waits=(Wait("signal", "żółw", 10, "ann", "orders.py:7"),),
    wait_count=11,
)
FULL_PROGRESS = AttemptProgress(
    confirmed_at_ms=1,
    beat_at_ms=2,
    ready_at_ms=3,
    failure_count=4,
    interruption_count=5,
    loss_count=6,
    undelivered_count=7,
    avoid_worker_id=worker_id(9),
    details=b"\x00\x01",
    percent=12.5,
    message="half way, żółw",
    cancel_at_ms=8,
    cancel_reason="asked",
    grace_at_ms=9,
    pause_wanted=True,
    is_sole=True,
    is_async=True,
    run=FULL_RUN,
    reason=Reason.POISONED,
    error=FAULT,
    output_encoding="bytes",
)
FULL = held(
    1,
    type="żółw",
    spec=FULL_SPEC,
    state=TaskState.CANCELLING,
    run_at_ms=NOW + 1,
    progress=FULL_PROGRESS,
    priority=0,
    attempt=3,
    version=4,
    session_no=5,
    last_outcome=Outcome.WORKER_LOST,
    due_at_ms=NOW + 2,
    is_guarded=True,
    labels={"team": "blau", "": "ß"},
    input=b"\x00\xff",
)
STATES = [
    pending(1),
    pending(1, line=Line.RETURNED),
    pending(1, line=Line.NONE, due_at_ms=NOW + 5),
    pending(1, line=Line.NONE, state=TaskState.WAITING),
    pending(1, line=Line.NONE, state=TaskState.PAUSED),
    held(1, state=TaskState.DISPATCHED),
    held(1),
    held(1, state=TaskState.CANCELLING),
    pending(1, line=Line.NONE, state=TaskState.CANCELLING),
    pending(1, labels={}, input=b""),
    FULL,
]


async def update(store: Store, *tasks: Task) -> None:
    await store.transaction(lambda tx: task_table.update_tasks(tx, tasks))


async def finish(store: Store, *tasks: Task) -> None:
    await store.transaction(lambda tx: task_table.finish_tasks(tx, tasks))


@pytest.mark.parametrize("task", STATES)
async def test_a_live_task_comes_back_as_it_was_written(store: Store, task: Task) -> None:
    await insert(store, task)
    assert await live(store, 1) == [task]
    loaded = await store.transaction(lambda tx: task_table.load_tasks(tx, [(NAMESPACE, task.id)]))
    # Nothing that is decided on a loaded task needs its input.
    assert loaded == [replace(task, input=None)]


@pytest.mark.parametrize("size", [0, CLAIM_INPUT_BYTES_MAX, CLAIM_INPUT_BYTES_MAX + 1])
async def test_a_claim_leaves_a_large_input_in_the_store(store: Store, size: int) -> None:
    task = pending(1, input=b"x" * size)
    await insert(store, task)
    (claimed,) = await store.transaction(lambda tx: task_table.claim_tasks(tx, [demand()]))
    is_large = size > CLAIM_INPUT_BYTES_MAX
    assert claimed == (replace(task, input=None, unread_bytes=size) if is_large else task)
    inputs = await store.transaction(lambda tx: task_table.load_inputs(tx, [(NAMESPACE, task.id)]))
    assert inputs == {(NAMESPACE, task.id): task.input}


async def test_an_update_writes_what_may_change_and_raises_the_version(store: Store) -> None:
    await insert(store, pending(1, priority=2, labels={"a": "b"}, input=b"in", version=7))
    changed = replace(FULL, version=7)
    await update(store, changed)
    never_changes = pending(1, priority=2, labels={"a": "b"}, input=b"in")
    assert await live(store, 1) == [
        replace(
            changed,
            version=8,
            type=never_changes.type,
            spec=never_changes.spec,
            priority=2,
            labels={"a": "b"},
            input=b"in",
        )
    ]


async def test_a_finished_task_moves_to_history(store: Store) -> None:
    await insert(store, FULL)
    done = finished_from(FULL, TaskState.FAILED, last_outcome=Outcome.FAILED, output=None)
    await finish(store, done)
    assert await live(store, 1) == []
    # Guarding is a matter of handing out; nobody asks a finished task for it.
    assert await history(store, 1) == [replace(done, version=done.version + 1, is_guarded=False)]


async def test_a_task_that_was_never_stored_alive_goes_straight_to_history(store: Store) -> None:
    born_done = finished_from(pending(1, labels={"a": "b"}), TaskState.CANCELLED, worker_id=None)
    await store.transaction(lambda tx: task_table.insert_finished(tx, [born_done]))
    assert await live(store, 1) == []
    assert await history(store, 1) == [born_done]


@pytest.mark.parametrize("write", [update, finish])
@pytest.mark.parametrize("version", [4, 6])
async def test_a_write_on_another_version_is_fenced_and_changes_nothing(
    store: Store, write: object, version: int
) -> None:
    stored = [held(1, version=5), held(2, version=5)]
    await insert(store, *stored)
    stale = [replace(stored[0]), replace(stored[1], version=version)]
    if write is finish:
        stale = [finished_from(each) for each in stale]
    else:
        stale = [replace(each, due_at_ms=NOW) for each in stale]
    assert callable(write)
    with pytest.raises(FenceLost) as failure:
        await write(store, *stale)
    assert task_id(2) in failure.value.ids
    assert await live(store, 1, 2) == stored
    assert await history(store, 1, 2) == []


@pytest.mark.parametrize("write", [update, finish])
async def test_a_write_on_a_task_that_is_gone_is_fenced(store: Store, write: object) -> None:
    assert callable(write)
    task = held(1)
    with pytest.raises(FenceLost):
        await write(store, finished_from(task) if write is finish else task)
    assert await live(store, 1) == []
    assert await history(store, 1) == []


async def test_a_task_finishes_once(store: Store) -> None:
    await insert(store, held(1))
    await finish(store, finished_from(held(1)))
    with pytest.raises(FenceLost):
        await finish(store, finished_from(held(1), TaskState.FAILED))
    (kept,) = await history(store, 1)
    assert kept.state is TaskState.SUCCEEDED


async def test_a_write_of_nothing_does_nothing(store: Store) -> None:
    await update(store)
    await finish(store)
    await insert(store)
    assert await live(store) == []


async def test_a_large_batch_is_written_and_found(store: Store) -> None:
    tasks = [pending(number) for number in range(1, 1201)]
    await insert(store, *tasks)
    dealt = [dispatched_from(task) for task in tasks]
    await update(store, *dealt)
    numbers = range(1, 1201)
    found = await live(store, *numbers)
    assert found == [replace(task, version=1) for task in dealt]
    await finish(store, *(finished_from(task) for task in found))
    assert await live(store, *numbers) == []
    assert len(await history(store, *numbers)) == len(tasks)


async def test_a_namespace_never_sees_a_task_of_another(store: Store) -> None:
    foreign = held(1, namespace="other/default")
    await insert(store, foreign, pending(2))
    assert await live(store, 1) == []
    with pytest.raises(FenceLost):
        await update(store, held(1))
    with pytest.raises(FenceLost):
        await finish(store, finished_from(held(1)))

    async def body(tx: Tx) -> list[Task]:
        return await task_table.load_tasks(tx, [("other/default", foreign.id)])

    assert await store.transaction(body) == [foreign]


async def test_the_same_id_may_live_in_two_namespaces(store: Store) -> None:
    twins = [pending(1), pending(1, namespace="other/default")]
    await insert(store, *twins)
    await finish(store, finished_from(twins[0]))
    assert await live(store, 1) == []
    keys = [("other/default", task_id(1))]
    assert await store.read(lambda tx: task_table.read_tasks(tx, keys)) == [twins[1]]


async def test_the_same_id_twice_is_refused(store: Store) -> None:
    await insert(store, pending(1))
    with pytest.raises(Refused):
        await insert(store, pending(2), pending(1))
    assert await live(store, 1, 2) == [pending(1)]


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "unknown"},
        {"state": "succeeded"},
        {"line": 4},
        {"line": 1, "state": "paused"},
        {"priority": 10},
        {"priority": -1},
        {"attempt": -1},
        {"state": "running", "line": 0},
        {"worker_id": worker_id(1)},
        {"spec": None},
    ],
)
async def test_the_database_repeats_the_invariants_of_a_task(
    store: Store, changes: dict[str, object]
) -> None:
    good: dict[str, object] = {
        "id": task_id(1),
        "namespace": NAMESPACE,
        "queue": QUEUE,
        "type": "mail",
        "state": "pending",
        "line": 0,
        "priority": 0,
        "created_at_ms": 0,
        "run_at_ms": 0,
        "attempt": 0,
        "version": 0,
        "worker_id": None,
        "handed_at_ms": 0,
        "session_no": 0,
        "last_outcome": None,
        "due_at_ms": None,
        "is_guarded": False,
        "labels": None,
        "spec": b"\x80",
        "progress": None,
        "input": None,
        "input_checksum": None,
        "progress_checksum": None,
    }
    with pytest.raises(Refused):
        await store.transaction(
            lambda tx: tx.each("insert_tasks", [tuple({**good, **changes}.values())])
        )
    assert await live(store, 1) == []


async def test_due_tasks_come_earliest_first_and_no_more_than_asked_for(store: Store) -> None:
    tasks = [pending(n, due_at_ms=NOW + offset) for n, offset in ((1, 30), (2, 10), (3, 20))]
    await insert(store, *tasks, pending(4), pending(5, due_at_ms=NOW + 31))

    async def due(now_ms: int, amount: int) -> list[str]:
        found = await store.transaction(
            lambda tx: task_table.load_due(tx, now_ms=now_ms, amount=amount)
        )
        return [task.id for task in found]

    assert await due(NOW + 9, 10) == []
    assert await due(NOW + 30, 10) == [task_id(2), task_id(3), task_id(1)]
    assert await due(NOW + 30, 2) == [task_id(2), task_id(3)]
    (next_due,) = await store.read(lambda tx: tx.one("next_due"))
    assert next_due[0] == NOW + 10


async def test_without_a_timer_there_is_no_next_instant(store: Store) -> None:
    await insert(store, pending(1))
    (next_due,) = await store.read(lambda tx: tx.one("next_due"))
    assert next_due[0] is None


async def test_what_a_worker_holds_is_found_by_id_and_bounded(store: Store) -> None:
    states = (TaskState.DISPATCHED, TaskState.RUNNING, TaskState.CANCELLING)
    mine = [held(number, state=state) for number, state in enumerate(states, 1)]
    others = [held(4, by=worker_id(2)), held(5, queue="other"), pending(6)]
    await insert(store, *reversed(mine), *others)

    async def of(amount: int) -> list[Task]:
        return await store.transaction(
            lambda tx: task_table.load_held(tx, worker(1), amount=amount)
        )

    assert await of(10) == mine
    assert len(await of(2)) == 2
    assert await store.transaction(lambda tx: task_table.load_held(tx, worker(9), amount=10)) == []


async def test_held_tasks_are_counted_per_queue(store: Store) -> None:
    other = [held(3, queue="other", by=worker_id(2))]
    await insert(store, held(1), held(2, by=worker_id(2)), *other, pending(4))
    queues = [(NAMESPACE, QUEUE), (NAMESPACE, "other"), (NAMESPACE, "empty"), ("x/y", QUEUE)]
    assert await store.transaction(lambda tx: task_table.count_held(tx, queues)) == {
        (NAMESPACE, QUEUE): 2,
        (NAMESPACE, "other"): 1,
        (NAMESPACE, "empty"): 0,
        ("x/y", QUEUE): 0,
    }


async def test_the_suspects_of_workers_are_told(store: Store) -> None:
    progress = AttemptProgress(loss_count=2, group_max=3)
    await insert(
        store,
        held(1, is_guarded=True, progress=progress),
        held(2, is_guarded=True),
        held(3, by=worker_id(2)),
        pending(4, is_guarded=True, line=Line.SUSPECT),
    )
    asked = [(NAMESPACE, QUEUE, worker_id(number)) for number in (1, 2, 3)]
    found = await store.transaction(lambda tx: task_table.load_suspects(tx, asked))
    assert sorted(found, key=lambda each: each[1].group_max) == [
        (worker_id(1), NO_PROGRESS),
        (worker_id(1), progress),
    ]


async def test_what_is_being_cancelled_is_told_per_worker(store: Store) -> None:
    await insert(
        store,
        held(1, state=TaskState.CANCELLING, attempt=4),
        held(2, by=worker_id(2), state=TaskState.CANCELLING, attempt=4),
        held(3),
        pending(4, state=TaskState.CANCELLING, line=Line.NONE),
    )
    found = await store.read(
        lambda tx: task_table.load_cancelling(tx, [worker_id(1), worker_id(3)])
    )
    assert found == [(worker_id(1), task_id(1), 4)]


async def test_tasks_are_counted_by_queue_type_and_state(store: Store) -> None:
    await insert(store, pending(1), pending(2), held(3), pending(4, type="sms", queue="other"))
    await insert(
        store,
        pending(5, line=Line.NONE),
        pending(6, state=TaskState.PAUSED, line=Line.NONE),
        pending(7, namespace="x/y"),
    )
    names = [QUEUE, "other", "unknown"]
    pending_, running, paused = TaskState.PENDING, TaskState.RUNNING, TaskState.PAUSED
    assert await store.read(lambda tx: listing.count_queues(tx, NAMESPACE, names, amount=100)) == {
        QUEUE: {"mail": {pending_: 3, running: 1, paused: 1}},
        "other": {"sms": {pending_: 1}},
    }
    assert await store.read(lambda tx: listing.count_depths(tx, NAMESPACE, names, amount=100)) == {
        QUEUE: {pending_: 3, running: 1, paused: 1},
        "other": {pending_: 1},
    }
    few = await store.read(lambda tx: listing.count_queues(tx, NAMESPACE, names, amount=2))
    assert sum(few[QUEUE]["mail"].values()) == 2
    assert few[QUEUE]["mail"][running] == 1
    found = await store.read(lambda tx: listing.find_busy_namespaces(tx, after="", amount=10))
    assert set(found) == {NAMESPACE, "x/y"}


async def test_ended_attempts_come_back_by_number_or_all_in_order(store: Store) -> None:
    attempts = [
        ended_attempt(1, 2, outcome=Outcome.FAILED, error=FAULT, state_after="failed"),
        ended_attempt(1, 1, worker_id=None),
        ended_attempt(2, 1),
    ]
    await store.transaction(lambda tx: task_table.insert_attempts(tx, attempts))
    found = await store.read(lambda tx: task_table.load_attempts(tx, (NAMESPACE, task_id(1))))
    assert found == [attempts[1], attempts[0]]
    asked = [(NAMESPACE, task_id(1), 2), (NAMESPACE, task_id(2), 2), ("x/y", task_id(2), 1)]
    assert await store.read(lambda tx: task_table.load_ended(tx, asked)) == [attempts[0]]


async def test_tasks_are_loaded_in_one_order_however_they_were_asked_for(store: Store) -> None:
    await insert(store, *(pending(number) for number in (3, 1, 2)))
    keys: Sequence[tuple[str, str]] = [(NAMESPACE, task_id(number)) for number in (2, 3, 1, 9)]
    loaded = await store.transaction(lambda tx: task_table.load_tasks(tx, keys))
    assert loaded == by_id(loaded)
    assert len(loaded) == 3
