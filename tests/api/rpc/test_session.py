"""Sessions over gRPC: frames both ways, and what the end of a stream means."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from tenure.api.rpc.session import flush_delay
from tenure.core.limits import LULL_ACKS_MAX
from tenure.engine.engine import Engine
from tenure.v1 import admin_service_pb2 as admin_pb
from tenure.v1 import session_service_pb2 as pb
from tenure.v1 import task_pb2, task_service_pb2, worker_pb2
from tests.api.rpc.wire import Wire, detail, open_wire, ref, state_name, succeeded
from tests.engine.world import NAMESPACE, World
from tests.polling import eventually

FOR_EVER_MS = 3_600_000
UNKNOWN = "019b0000-0000-7000-8000-00000000dead"


def cancel(task_id: str) -> task_service_pb2.CancelTaskRequest:
    return task_service_pb2.CancelTaskRequest(namespace_id=NAMESPACE, task_id=task_id)


async def is_suspect(wire: Wire, worker_id: str) -> bool:
    return (await wire.worker(worker_id)).health == worker_pb2.WORKER_HEALTH_SUSPECT


async def wait_for_suspicion(wire: Wire, worker_id: str) -> None:
    await eventually(lambda: is_suspect(wire, worker_id))


async def test_a_session_is_welcomed_with_lease_token_and_window(wire: Wire) -> None:
    _, stream = await wire.session_worker(window=500)
    welcome = stream.welcome
    assert (welcome.lease_duration_ms, welcome.heartbeat_interval_ms) == (15_000, 5_000)
    assert (welcome.session_no, welcome.window, welcome.token) == (1, 100, "1")


async def test_the_server_pushes_up_to_the_window_and_refills_what_is_finished(wire: Wire) -> None:
    ids = await wire.enqueue(*[wire.new() for _ in range(5)])
    _, stream = await wire.session_worker(window=2)
    first = await stream.tasks(2)
    assert [task.task_id for task in first] == ids[:2]
    await stream.send(finished=[succeeded(task, b"ok") for task in first])
    acks: list[pb.Ack] = []
    tasks: list[task_pb2.AssignedTask] = []
    while len(acks) < 2 or len(tasks) < 2:
        frame = await stream.read()
        acks += frame.acks
        tasks += frame.tasks
    assert [state_name(ack.state) for ack in acks] == ["SUCCEEDED", "SUCCEEDED"]
    assert [task.task_id for task in tasks] == ids[2:4]
    assert await wire.state(ids[4]) == "PENDING"


async def test_a_few_acknowledgements_go_along_with_the_next_task(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush_delay, "LULL_MS", FOR_EVER_MS)
    await wire.enqueue()
    _, stream = await wire.session_worker()
    (first,) = await stream.tasks()
    await stream.send(finished=[succeeded(first, b"ok")])
    await wire.until_state(first.task_id, "SUCCEEDED")
    (second,) = await wire.enqueue()
    frame = await stream.read()
    assert [ack.task_id for ack in frame.acks] == [first.task_id]
    assert [task.task_id for task in frame.tasks] == [second]


async def test_many_acknowledgements_wait_for_nothing(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush_delay, "LULL_MS", FOR_EVER_MS)
    count = LULL_ACKS_MAX + 1
    await wire.enqueue(*[wire.new() for _ in range(count)])
    _, stream = await wire.session_worker(window=count)
    tasks = await stream.tasks(count)
    await stream.send(finished=[succeeded(task, b"ok") for task in tasks])
    assert len(await stream.until(lambda frame: frame.acks)) == count


async def test_acknowledgements_before_a_goodbye_are_written_before_the_end(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush_delay, "LULL_MS", FOR_EVER_MS)
    await wire.enqueue()
    _, stream = await wire.session_worker()
    (task,) = await stream.tasks()
    await stream.send(finished=[succeeded(task, b"ok")])
    await stream.send(goodbye=pb.Goodbye())
    (ack,) = await stream.until(lambda frame: frame.acks)
    assert ack.task_id == task.task_id
    await stream.end()


async def test_a_larger_window_lets_more_come_at_once(wire: Wire) -> None:
    await wire.enqueue(*[wire.new() for _ in range(3)])
    _, stream = await wire.session_worker(window=0)
    await stream.send(window=3)
    assert len(await stream.tasks(3)) == 3


async def test_a_started_task_runs_and_its_beats_reach_the_next_attempt(wire: Wire) -> None:
    (task_id,) = await wire.enqueue()
    _, stream = await wire.session_worker()
    (task,) = await stream.tasks()
    beat = task_pb2.TaskBeat(
        task_id=task_id, attempt=1, details=b"half", progress_percent=50.0, message="half"
    )
    released = task_pb2.TaskFinish(task_id=task_id, attempt=1, kind=task_pb2.FINISH_KIND_RELEASED)
    await stream.send(started=[ref(task)], task_beats=[beat], finished=[released])
    (again,) = await stream.tasks()
    assert (again.attempt, again.heartbeat_details) == (2, b"half")
    shown = await wire.get(task_id)
    assert (shown.progress_percent, shown.failure_count) == (50.0, 0)


async def test_refused_reports_are_answered_each_on_its_own(wire: Wire) -> None:
    await wire.enqueue()
    _, stream = await wire.session_worker()
    (task,) = await stream.tasks()
    stale = task_pb2.TaskRef(task_id=task.task_id, attempt=7)
    malformed = task_pb2.TaskRef(task_id="x", attempt=1)
    odd = task_pb2.TaskFinish(task_id=UNKNOWN, attempt=1)
    unreadable = succeeded(task_pb2.TaskRef(task_id=UNKNOWN, attempt=2))
    unreadable.output_encoding = "a b"
    await stream.send(
        started=[stale], finished=[succeeded(malformed), odd, unreadable, succeeded(task)]
    )
    acks: dict[tuple[str, int], str] = {}
    while len(acks) < 5:
        for ack in (await stream.read()).acks:
            acks[(ack.task_id, ack.attempt)] = ack.error.code or state_name(ack.state)
    assert acks == {
        (task.task_id, 7): "attempt_mismatch",
        ("x", 1): "invalid_argument",
        (UNKNOWN, 1): "invalid_argument",
        (UNKNOWN, 2): "invalid_argument",
        (task.task_id, 1): "SUCCEEDED",
    }


async def test_a_beat_renews_the_lease_and_a_stale_one_is_told_the_token(wire: Wire) -> None:
    worker_id, stream = await wire.session_worker()
    await stream.send(beat=pb.WorkerBeat(token="1", total_completed=4, active_count=0))
    grant = await stream.until(lambda frame: frame.HasField("lease") and frame.lease)
    assert (grant.token, grant.lease_duration_ms) == ("2", 15_000)
    for stale in ("1", "garbled"):
        await stream.send(beat=pb.WorkerBeat(token=stale, total_completed=9))
        grant = await stream.until(lambda frame: frame.HasField("lease") and frame.lease)
        assert (grant.error.code, grant.error.current_token) == ("token_mismatch", "2")
    assert (await wire.worker(worker_id)).total_completed == 4


async def test_a_cancelled_task_is_told_at_once(wire: Wire) -> None:
    (task_id,) = await wire.enqueue()
    _, stream = await wire.session_worker()
    (task,) = await stream.tasks()
    await stream.send(started=[ref(task)])
    await wire.until_state(task_id, "RUNNING")
    await wire.tasks.CancelTask(cancel(task_id))
    (request,) = await stream.until(lambda frame: frame.cancel)
    assert (request.task_id, request.attempt) == (task_id, 1)


async def test_a_drain_is_told_and_nothing_more_comes(wire: Wire) -> None:
    worker_id, stream = await wire.session_worker()
    request = admin_pb.DrainWorkerRequest(namespace_id=NAMESPACE, worker_id=worker_id)
    request.deadline.FromSeconds(60)
    await wire.admin.DrainWorker(request)
    drain = await stream.until(lambda frame: frame.HasField("drain") and frame.drain)
    assert 0 < drain.deadline_in_ms <= 60_000
    (task_id,) = await wire.enqueue()
    await stream.send(beat=pb.WorkerBeat(token="1"))
    frame = await stream.read()
    assert frame.HasField("lease")
    assert not frame.tasks
    assert await wire.state(task_id) == "PENDING"


async def test_a_session_that_a_draining_worker_opens_is_told_to_drain(wire: Wire) -> None:
    worker_id, stream = await wire.session_worker()
    request = admin_pb.DrainWorkerRequest(namespace_id=NAMESPACE, worker_id=worker_id)
    await wire.admin.DrainWorker(request)
    stream.call.cancel()
    again = await wire.open_session(worker_id, session_no=2)
    await again.until(lambda frame: frame.HasField("drain"))


async def test_an_evicted_worker_is_told_why_and_its_stream_ends(wire: Wire) -> None:
    worker_id, stream = await wire.session_worker()
    await wire.admin.EvictWorker(
        admin_pb.EvictWorkerRequest(namespace_id=NAMESPACE, worker_id=worker_id)
    )
    end = await stream.until(lambda frame: frame.HasField("end") and frame.end)
    assert (end.error.code, end.error.reason) == ("worker_inactive", "evicted")
    await stream.end()


async def test_a_closed_stream_makes_the_worker_suspect_until_it_is_back(wire: Wire) -> None:
    worker_id, stream = await wire.session_worker()
    stream.call.cancel()
    await wait_for_suspicion(wire, worker_id)
    await wire.open_session(worker_id, session_no=2)
    assert not await is_suspect(wire, worker_id)


async def test_a_stream_that_is_half_closed_without_goodbye_is_lost_too(wire: Wire) -> None:
    worker_id, stream = await wire.session_worker()
    await stream.call.done_writing()
    await wait_for_suspicion(wire, worker_id)


async def test_a_goodbye_leaves_no_suspicion_and_its_reports_are_answered(wire: Wire) -> None:
    await wire.enqueue()
    worker_id, stream = await wire.session_worker()
    (task,) = await stream.tasks()
    await stream.send(finished=[succeeded(task)], goodbye=pb.Goodbye())
    (ack,) = await stream.until(lambda frame: frame.acks)
    assert state_name(ack.state) == "SUCCEEDED"
    await stream.end()
    assert not await is_suspect(wire, worker_id)
    assert (await wire.worker(worker_id)).status == worker_pb2.WORKER_STATUS_ONLINE


async def test_a_final_goodbye_deregisters(wire: Wire) -> None:
    worker_id, stream = await wire.session_worker()
    await stream.send(goodbye=pb.Goodbye(is_final=True))
    await stream.end()
    shown = await wire.worker(worker_id)
    assert (shown.status, shown.end_reason) == (worker_pb2.WORKER_STATUS_OFFLINE, "deregistered")


async def test_a_new_session_resumes_what_is_held_and_ends_what_was_not_delivered(
    wire: Wire,
) -> None:
    known, lost = await wire.enqueue(wire.new(), wire.new())
    worker_id, stream = await wire.session_worker()
    tasks = await stream.tasks(2)
    stream.call.cancel()
    held = [ref(task) for task in tasks if task.task_id == known]
    foreign = task_pb2.TaskRef(task_id=UNKNOWN, attempt=1)
    again = await wire.open_session(worker_id, session_no=2, held=[*held, foreign])
    assert list(again.welcome.stop) == [
        task_pb2.TaskRef(task_id=UNKNOWN, attempt=1, stop_reason="lost_lease")
    ]
    (task,) = await again.tasks()
    assert (task.task_id, task.attempt) == (lost, 2)
    assert (await wire.get(lost)).interruption_count == 0
    await again.send(finished=[succeeded(held[0])])
    (ack,) = await again.until(lambda frame: frame.acks)
    assert (ack.task_id, state_name(ack.state)) == (known, "SUCCEEDED")


async def test_a_session_that_comes_late_is_refused(wire: Wire) -> None:
    worker_id, _ = await wire.session_worker()
    await wire.open_session(worker_id, session_no=3)
    stream: Any = wire.sessions.Open()
    hello = pb.Hello(namespace_id=NAMESPACE, worker_id=worker_id, session_no=2, window=1)
    await stream.write(pb.ClientFrame(hello=hello))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.read()
    assert detail(caught.value).code == "wrong_state"


async def test_an_unknown_worker_cannot_open_a_session(wire: Wire) -> None:
    stream: Any = wire.sessions.Open()
    hello = pb.Hello(namespace_id=NAMESPACE, worker_id=UNKNOWN, session_no=1, window=1)
    await stream.write(pb.ClientFrame(hello=hello))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.read()
    assert detail(caught.value).code == "worker_inactive"


@pytest.mark.parametrize(
    ("frame", "field"),
    [
        (pb.ClientFrame(), "hello"),
        (pb.ClientFrame(hello=pb.Hello(worker_id="x")), "worker_id"),
        (pb.ClientFrame(hello=pb.Hello(worker_id=UNKNOWN, window=-1)), "window"),
        (pb.ClientFrame(hello=pb.Hello(worker_id=UNKNOWN, session_no=-1)), "session_no"),
        (pb.ClientFrame(hello=pb.Hello(worker_id=UNKNOWN, namespace_id="a//b")), "namespace_id"),
    ],
)
async def test_a_bad_hello_is_refused(wire: Wire, frame: pb.ClientFrame, field: str) -> None:
    stream: Any = wire.sessions.Open()
    await stream.write(frame)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.read()
    assert detail(caught.value).field == field


async def test_tokens_come_with_the_tasks_when_the_worker_wants_them(wire: Wire) -> None:
    await wire.enqueue(wire.new(), wire.new())
    _, stream = await wire.session_worker(window=1, wants_tokens=True)
    (task,) = await stream.tasks()
    request = task_service_pb2.CompleteByTokenRequest(
        task_token=task.task_token, kind=task_pb2.FINISH_KIND_SUCCEEDED
    )
    started = task_service_pb2.StartTasksRequest(
        namespace_id=NAMESPACE,
        worker_id=(await wire.get(task.task_id)).worker_id,
        items=[ref(task)],
    )
    await wire.tasks.StartTasks(started)
    assert state_name((await wire.tasks.CompleteByToken(request)).state) == "SUCCEEDED"
    (other,) = await stream.tasks()
    assert other.task_token


async def test_a_stopping_server_closes_sessions_and_suspects_nobody(
    world: World, engine: Engine
) -> None:
    other = await world.start()
    async with open_wire(engine) as wire, open_wire(other) as elsewhere:
        (task_id,) = await wire.enqueue()
        worker_id, stream = await wire.session_worker()
        (task,) = await stream.tasks()
        await wire.server.stop(5)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.end()
        refusal = detail(caught.value)
        assert (refusal.code, refusal.reason) == ("unavailable", "shutting_down")
        assert not await is_suspect(elsewhere, worker_id)
        again = await elsewhere.open_session(worker_id, session_no=2, held=[ref(task)])
        assert not again.welcome.stop
        await again.send(finished=[succeeded(task)])
        await again.until(lambda frame: frame.acks)
        assert await elsewhere.state(task_id) == "SUCCEEDED"


async def test_a_worker_that_does_not_read_gets_no_more_than_its_window(
    wire: Wire, engine: Engine
) -> None:
    big = b"x" * 1_000_000
    for _ in range(12):
        await wire.enqueue(wire.new(input=big))
    worker_id, stream = await wire.session_worker(window=8)
    await eventually(lambda: engine.waiting_count == 0)

    async def is_full() -> bool:
        return (await wire.worker(worker_id)).held_count == 8

    await eventually(is_full)
    assert len(await stream.tasks(8)) == 8
