"""A worker belongs to the API key that registered it: other keys do not speak for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from msgspec.structs import replace

from tenure.core.limits import WORKER_KEY_KEPT_MS, WORKER_KEYS_KEPT_MAX
from tenure.core.task.record import Task, TaskState
from tenure.core.worker.record import EndReason, WorkerMode, WorkerStatus
from tenure.engine.command import AnyCommand
from tenure.engine.engine import Engine
from tenure.engine.read import query
from tenure.engine.task.command import (
    ClaimTasks,
    ConfirmTasks,
    Finish,
    FinishKind,
    FinishTasks,
    HeartbeatTasks,
    Reported,
    TaskBeat,
)
from tenure.engine.worker.command import DeregisterWorker, DrainWorker, OpenSession
from tenure.engine.worker.worker_key import WorkerKeys
from tenure.errors import AlreadyExists, WorkerInactive
from tests.engine.world import NAMESPACE, QUEUE, Clock, Sink, World, heartbeat, ref

MINE: Final = "a" * 16
THEIRS: Final = "b" * 16
Make = Callable[[Engine, str, Task, str | None], AnyCommand]


def _report(kind: type[Any], item: Callable[[Task], object]) -> Make:
    def make(_: Engine, worker_id: str, task: Task, speaker: str | None) -> AnyCommand:
        made: AnyCommand = kind(
            namespace=NAMESPACE, worker_id=worker_id, items=(item(task),), speaker=speaker
        )
        return made

    return make


def _about(kind: type[Any], **fields: Any) -> Make:
    def make(_: Engine, worker_id: str, _task: Task, speaker: str | None) -> AnyCommand:
        made: AnyCommand = kind(namespace=NAMESPACE, worker_id=worker_id, speaker=speaker, **fields)
        return made

    return make


def _beat(engine: Engine, worker_id: str, _: Task, speaker: str | None) -> AnyCommand:
    return replace(heartbeat(engine, worker_id, 1), speaker=speaker)


def _open(_: Engine, worker_id: str, task: Task, speaker: str | None) -> AnyCommand:
    return OpenSession(
        namespace=NAMESPACE,
        worker_id=worker_id,
        held=(ref(task),),
        window=1,
        sink=Sink(),
        speaker=speaker,
    )


CALLS: Final[dict[str, Make]] = {
    "heartbeat": _beat,
    "claim": _about(ClaimTasks, queue=QUEUE, types=frozenset({"mail"}), max_tasks=1, wait_ms=0),
    "confirm": _report(ConfirmTasks, ref),
    "heartbeat of a task": _report(
        HeartbeatTasks, lambda task: TaskBeat(task_id=task.id, attempt=task.attempt)
    ),
    "finish": _report(
        FinishTasks,
        lambda task: Finish(task_id=task.id, attempt=task.attempt, kind=FinishKind.SUCCEEDED),
    ),
    "session": _open,
    "drain": _about(DrainWorker, is_own=True),
    "goodbye": _about(DeregisterWorker),
}


@pytest.mark.parametrize("call", CALLS)
async def test_a_key_speaks_only_for_its_own_workers(
    world: World, engine: Engine, call: str
) -> None:
    worker = await world.worker(engine, key_id=MINE)
    task = await world.held(engine, worker)
    await world.add(engine)
    before = [await world.database.rows(f"SELECT * FROM {name}") for name in ("workers", "tasks")]
    with pytest.raises(WorkerInactive) as refused:
        await engine.submit(CALLS[call](engine, worker, task, THEIRS))
    assert refused.value.fields == {"reason": "other_key"}
    after = [await world.database.rows(f"SELECT * FROM {name}") for name in ("workers", "tasks")]
    assert after == before
    assert await engine.submit(CALLS[call](engine, worker, task, MINE))


@pytest.mark.parametrize("call", CALLS)
async def test_a_worker_of_nobody_is_spoken_for_by_each_key(
    world: World, engine: Engine, call: str
) -> None:
    """It was registered before there were keys, or by a server that does not note them."""
    worker = await world.worker(engine)
    task = await world.held(engine, worker)
    await world.add(engine)
    assert await engine.submit(CALLS[call](engine, worker, task, THEIRS))


async def test_a_goodbye_is_repeated_by_its_own_key_alone(world: World, engine: Engine) -> None:
    worker = await world.worker(engine, key_id=MINE)
    goodbye = DeregisterWorker(namespace=NAMESPACE, worker_id=worker, speaker=MINE)
    assert (await engine.submit(goodbye)).end_reason is EndReason.DEREGISTERED
    assert (await engine.submit(goodbye)).end_reason is EndReason.DEREGISTERED
    with pytest.raises(WorkerInactive):
        await engine.submit(replace(goodbye, speaker=THEIRS))


async def test_a_worker_that_registers_again_belongs_to_its_new_key(
    world: World, engine: Engine
) -> None:
    """Whoever knows the instance key is the worker; it keeps what it holds."""
    first = await world.register(engine, key_id=MINE, instance_key="secret")
    worker = first.worker.id
    task = await world.running(engine, worker)
    again = await world.register(engine, key_id=THEIRS, instance_key="secret")
    assert (again.worker.id, again.worker.key_id) == (worker, THEIRS)
    assert again.lease.token == first.lease.token
    finish = CALLS["finish"]
    with pytest.raises(WorkerInactive):
        await engine.submit(finish(engine, worker, task, MINE))
    answer = await engine.submit(finish(engine, worker, task, THEIRS))
    assert answer == (Reported(TaskState.SUCCEEDED),)
    assert (await world.task(task.id)).attempt == 1


async def test_the_name_of_a_worker_of_another_key_is_taken(world: World, engine: Engine) -> None:
    """To supersede a worker ends it as surely as a goodbye does."""
    worker = await world.worker(engine, key_id=MINE, name="mailer")

    async def register(key_id: str, speaker: str | None) -> str:
        fields: Any = {"name": "mailer", "key_id": key_id, "speaker": speaker}
        return (await world.register(engine, **fields)).worker.id

    async def status(worker_id: str) -> WorkerStatus:
        view = await query.get_worker(engine.store, namespace=NAMESPACE, worker_id=worker_id)
        return view.worker.status

    with pytest.raises(AlreadyExists, match="another API key"):
        await register(THEIRS, THEIRS)
    assert await status(worker) is WorkerStatus.ONLINE
    mine = await register(MINE, MINE)
    assert await status(worker) is WorkerStatus.OFFLINE
    await register(THEIRS, None)
    assert await status(mine) is WorkerStatus.OFFLINE


# -- What a server remembers


async def test_the_key_of_a_worker_that_polls_is_read_once(world: World, engine: Engine) -> None:
    worker = await world.worker(engine, key_id=MINE)
    keys = engine.worker_keys
    assert keys.unproven(NAMESPACE, worker, MINE) is None
    assert keys.unproven(NAMESPACE, worker, THEIRS) == THEIRS
    assert keys.unproven("other/default", worker, MINE) == MINE
    await world.advance(WORKER_KEY_KEPT_MS)
    assert keys.unproven(NAMESPACE, worker, MINE) == MINE
    await engine.submit(replace(heartbeat(engine, worker, 1, wants_cancels=True), speaker=MINE))
    assert keys.unproven(NAMESPACE, worker, MINE) is None


async def test_a_key_that_was_changed_elsewhere_is_known_after_a_while(world: World) -> None:
    here, elsewhere = await world.start(), await world.start()
    worker = await world.worker(here, key_id=MINE, instance_key="secret")
    await world.register(elsewhere, key_id=THEIRS, instance_key="secret")
    assert elsewhere.worker_keys.unproven(NAMESPACE, worker, MINE) == MINE
    # Whoever asks with the new key is compared with the row.
    await world.claim(here, worker, speaker=THEIRS)
    assert here.worker_keys.unproven(NAMESPACE, worker, MINE) == MINE
    assert here.worker_keys.unproven(NAMESPACE, worker, THEIRS) is None


async def test_what_is_remembered_of_workers_is_bounded(world: World, engine: Engine) -> None:
    first = (await world.register(engine, key_id=MINE)).worker
    keys = WorkerKeys(Clock())
    keys.learn(replace(first, id=f"worker-{number}") for number in range(WORKER_KEYS_KEPT_MAX))
    assert keys.unproven(NAMESPACE, "worker-0", MINE) is None
    keys.learn([first])
    assert keys.unproven(NAMESPACE, "worker-0", MINE) == MINE
    assert keys.unproven(NAMESPACE, first.id, MINE) is None
    keys.learn([replace(first, id="session", mode=WorkerMode.SESSION)])
    assert keys.unproven(NAMESPACE, "session", MINE) == MINE
