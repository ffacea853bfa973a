"""Workers that say they are another one, and ids that hurt nobody."""

from __future__ import annotations

from typing import Final

from tenure.api.guard.rate_limit import Allowance
from tenure.v1 import session_service_pb2 as session_pb
from tenure.v1 import task_service_pb2 as task_pb
from tenure.v1 import worker_pb2
from tenure.v1 import workflow_service_pb2 as workflow_pb
from tests.api.access.keyed_server import KeyedServer, bearer, ended, shown
from tests.api.rpc.wire import Stream, open_wire, ref, refused, succeeded
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE, World
from tests.polling import eventually
from tests.security.test_peer_credential import held

MIB: Final = 1024 * 1024


async def _session(lobby: KeyedServer, key: str) -> Stream:
    """Open a session of a new worker in the first namespace."""
    registration = await lobby.world.worker(lobby.engine, mode="session")
    stream = Stream(lobby.wire.sessions.Open(metadata=shown(key)))
    hello = session_pb.Hello(namespace_id=NAMESPACE, worker_id=registration, window=1, session_no=1)
    await stream.send(hello=hello)
    stream.welcome = (await stream.read()).welcome
    return stream


async def test_weakness_a_worker_that_says_it_is_another_one(lobby: KeyedServer) -> None:
    """Who does not hold a task cannot report on it, and one of another tenant is not there."""
    worker_id, task = await held(lobby)
    intruder = (await lobby.wire.register()).worker_id
    finish = task_pb.FinishTasksRequest(
        namespace_id=NAMESPACE, worker_id=intruder, items=[succeeded(task)]
    )
    (result,) = (await lobby.wire.tasks.FinishTasks(finish)).results
    assert result.error.code == "attempt_mismatch"
    token = task_pb.CreateTaskTokenRequest(
        namespace_id=NAMESPACE, worker_id=intruder, item=ref(task)
    )
    assert (await refused(lobby.wire.tasks.CreateTaskToken(token)))[1].code == "attempt_mismatch"
    theirs = await lobby.make_key("worker", OTHER_NAMESPACE)
    for namespace in (OTHER_NAMESPACE, NAMESPACE):
        finish.namespace_id, finish.worker_id = namespace, worker_id
        call = lobby.wire.tasks.FinishTasks(finish, metadata=shown(theirs))
        if namespace == NAMESPACE:
            assert (await refused(call))[1].code == "not_found"
        else:
            # In the words for a worker and a task that do not exist.
            assert (await call).results[0].error.code == "worker_inactive"
    rows = await lobby.world.database.rows(f"SELECT state FROM tasks WHERE id = '{task.task_id}'")
    assert rows == [{"state": "running"}]


async def test_weakness_a_session_that_takes_the_place_of_another_worker(
    lobby: KeyedServer,
) -> None:
    theirs = await lobby.make_key("worker", OTHER_NAMESPACE)
    mine = await lobby.make_key("worker", NAMESPACE)
    stream = await _session(lobby, mine)
    (row,) = await lobby.world.database.rows("SELECT id, session_no FROM workers")
    for namespace in (NAMESPACE, OTHER_NAMESPACE):
        hello = session_pb.Hello(
            namespace_id=namespace, worker_id=row["id"], window=5, session_no=9
        )
        call = lobby.wire.sessions.Open(metadata=shown(theirs))
        await call.write(session_pb.ClientFrame(hello=hello))
        assert (await ended(call))[0] in {"NOT_FOUND", "FAILED_PRECONDITION"}
    assert await lobby.world.database.rows("SELECT id, session_no FROM workers") == [row]
    await stream.send(beat=session_pb.WorkerBeat(token=stream.welcome.token))
    assert await stream.until(lambda frame: frame.HasField("lease"))
    stream.call.cancel()


async def test_weakness_workers_told_apart_by_host_and_process(lobby: KeyedServer) -> None:
    """In containers everybody is process 1 of some host: only the id says who is who."""
    made = [
        (await lobby.wire.register(hostname="localhost", pid=1, mode=worker_pb2.WORKER_MODE_POLL))
        for _ in range(3)
    ]
    assert len({each.worker_id for each in made}) == 3

    async def all_are_online() -> bool:
        found = [await lobby.wire.worker(each.worker_id) for each in made]
        return all(each.status == worker_pb2.WORKER_STATUS_ONLINE for each in found)

    await eventually(all_are_online)


async def test_the_instance_key_of_a_worker_is_shown_to_nobody(lobby: KeyedServer) -> None:
    """Whoever knows it may register the worker with another API key."""
    secret = "only-the-worker-knows-it"
    worker_id = (await lobby.wire.register(instance_key=secret)).worker_id
    key = await lobby.make_key("admin")
    shown_texts = [
        str(
            await lobby.wire.workflows.ListWorkers(
                workflow_pb.ListWorkersRequest(namespace_id=NAMESPACE), metadata=shown(key)
            )
        ),
        str(
            await lobby.wire.workflows.GetWorker(
                workflow_pb.GetWorkerRequest(namespace_id=NAMESPACE, worker_id=worker_id),
                metadata=shown(key),
            )
        ),
    ]
    for path in ("/v1/workers", f"/v1/workers/{worker_id}", "/v1/diagnosis"):
        answer = await lobby.site.client.get(
            path, params={"namespace": NAMESPACE}, headers=bearer(key)
        )
        assert answer.status_code == 200
        shown_texts.append(answer.text)
    assert worker_id in shown_texts[0]
    assert not [text for text in shown_texts if secret in text]


async def test_the_id_of_a_heartbeat_is_checked_before_it_is_remembered(embedded: World) -> None:
    """What counts by an id keeps it: one of megabytes would fill the memory."""
    engine = await embedded.start()
    allowance = Allowance(embedded.clock)
    async with open_wire(engine, allowance) as wire:
        status, found = await refused(wire.beat("x" * MIB, "1"))
        assert (status, found.code, found.field) == (
            "INVALID_ARGUMENT",
            "invalid_argument",
            "worker_id",
        )
        assert len(allowance.beats) == 0
