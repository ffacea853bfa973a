"""Every call of the workflow service: a good request, and what is said to those that are not.

The names and numbers of the fields are written down a second time, as clients of other makers know
them: who has generated code from those messages must be understood.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration

from tenure.v1 import task_pb2, task_service_pb2
from tenure.v1 import workflow_service_pb2 as pb
from tests.api.rpc.wire import Wire
from tests.engine.world import NAMESPACE, QUEUE, World

TYPE: Final = "order"
OTHER_QUEUE: Final = "other"
UNKNOWN: Final = "019b0000-0000-7000-8000-00000000dead"
ERROR: Final = task_pb2.TaskError(message="boom", type="ValueError")
# What a second call with the same request gets, if it is no refusal and no answer of its own.
SAME: Final = "the same answer"
# What a request gets in another namespace, if it may well be made there.
ELSEWHERE: Final = "an answer without anything of ours"
GIVEN: Final = "anything that is not the default"

Fields = dict[str, Any]


@dataclass
class Scene:
    """What requests name: a run that is held in its second attempt, its worker, and others."""

    wire: Wire
    world: World
    worker: str
    token: str
    other: str
    run: str
    paused: str
    finished: str

    async def start(self, **fields: Any) -> str:
        return await start(self.wire, **fields)

    async def drain(self) -> None:
        await call(self.wire, "DeregisterWorker", worker_id=self.worker, drain=True)


class CallRow(NamedTuple):
    """One call: a request with every field, the answer, and the refusals.

    ``stale`` and ``other`` are the refusals of an older attempt and of another worker, for requests
    that name such. ``bad`` are changes of the request, the code, and the field that is blamed.
    """

    given: Callable[[Scene], Fields]
    answer: Fields
    repeat: str | Fields
    foreign: str = "not_found"
    stale: str = ""
    other: str = ""
    bad: tuple[tuple[Fields, str, str], ...] = ()
    before: Callable[[Scene], Awaitable[object]] | None = None


async def call(wire: Wire, method: str, namespace_id: str = NAMESPACE, **fields: Any) -> Any:
    """Make a call about a namespace; a check of health is about none."""
    if method != "HealthCheck":
        fields["namespace_id"] = namespace_id
    return await getattr(wire.workflows, method)(request_of(method, **fields))


def request_of(method: str, **fields: Any) -> Any:
    """Return the request of a method."""
    return getattr(pb, f"{method}Request")(**fields)


async def start(wire: Wire, **fields: Any) -> str:
    """Start a run that nobody has."""
    given = {"workflow_type": TYPE, "task_queue": QUEUE, "input": b"[1]", **fields}
    return str((await call(wire, "StartWorkflow", **given)).run_id)


async def poll(wire: Wire, worker_id: str) -> task_pb2.AssignedTask:
    """Let a worker have the only run that waits for one."""
    (task,) = await wire.poll(worker_id, supported_workflow_types=[TYPE])
    return task


async def set_scene(wire: Wire, world: World) -> Scene:
    """Make everything that requests can name."""
    other = await wire.register(TYPE, task_queue=OTHER_QUEUE)
    await world.advance(1)
    made = await wire.register(TYPE, **WORKER)
    beat = await wire.beat(
        made.worker_id, made.token, active_count=1, completed_delta=2, failed_delta=1
    )
    finished = await start(wire)
    await call(wire, "TerminateWorkflowRun", run_id=finished)
    run = await start(wire, external_id="order-42")
    first = await poll(wire, made.worker_id)
    released = task_pb2.TaskFinish(
        task_id=run, attempt=first.attempt, kind=task_pb2.FINISH_KIND_RELEASED
    )
    await wire.finish(made.worker_id, released)
    assert (await poll(wire, made.worker_id)).attempt == 2
    paused = await start(wire)
    await wire.tasks.PauseTask(task_request("PauseTask", paused))
    return Scene(
        wire=wire,
        world=world,
        worker=made.worker_id,
        token=beat.token,
        other=other.worker_id,
        run=run,
        paused=paused,
        finished=finished,
    )


def task_request(method: str, task_id: str) -> Any:
    """Return a request about a task of our namespace."""
    kind: Any = getattr(task_service_pb2, f"{method}Request")
    return kind(namespace_id=NAMESPACE, task_id=task_id)


WORKER: Final[Fields] = {
    "task_queue": QUEUE,
    "workflow_types": [TYPE],
    "hostname": "host-1",
    "pid": 7,
    "version": "1.2.3",
    "max_concurrent": 5,
    "labels": {"region": "north"},
}

# What every call of one run refuses.
_BAD_RUN: Final[tuple[tuple[Fields, str, str], ...]] = (
    ({"run_id": ""}, "invalid_argument", "run_id"),
    ({"run_id": "x"}, "invalid_argument", "run_id"),
    ({"run_id": UNKNOWN}, "not_found", ""),
    ({"run_id": "external:none"}, "not_found", ""),
    ({"namespace_id": "a/b/c"}, "invalid_argument", "namespace_id"),
)
_BAD_HOLDER: Final = (
    *_BAD_RUN,
    ({"worker_id": ""}, "invalid_argument", "worker_id"),
    ({"worker_id": "x"}, "invalid_argument", "worker_id"),
    ({"worker_id": UNKNOWN}, "worker_inactive", ""),
    ({"attempt": 0}, "invalid_argument", "attempt"),
    ({"attempt": -1}, "invalid_argument", "attempt"),
    ({"attempt": 3}, "attempt_mismatch", ""),
)
_BAD_STEP: Final = (
    *_BAD_HOLDER,
    ({"step_id": ""}, "invalid_argument", "step_id"),
    ({"step_id": "a\0b"}, "invalid_argument", "step_id"),
    ({"step_id": "k" * 513}, "invalid_argument", "step_id"),
)


def _run(scene: Scene) -> Fields:
    return {"run_id": scene.run}


def _held(scene: Scene) -> Fields:
    return {"run_id": scene.run, "worker_id": scene.worker, "attempt": 2}


def _step(scene: Scene, **fields: Any) -> Fields:
    return {**_held(scene), "step_id": "charge", **fields}


async def _completed(scene: Scene) -> None:
    await call(scene.wire, "CompleteStep", **_step(scene, output=b"12"))


ROWS: Final[dict[str, CallRow]] = {
    "StartWorkflow": CallRow(
        lambda _: {
            "workflow_type": TYPE,
            "task_queue": QUEUE,
            "input": b"[1]",
            "idempotency_key": "k",
        },
        {"run_id": GIVEN, "already_exists": False, "status": pb.WORKFLOW_STATUS_PENDING},
        repeat={"run_id": GIVEN, "already_exists": True},
        foreign=ELSEWHERE,
        bad=(
            ({"workflow_type": ""}, "invalid_argument", "workflow_type"),
            ({"task_queue": "a b"}, "invalid_argument", "task_queue"),
            ({"run_id": "x"}, "invalid_argument", "run_id"),
            ({"namespace_id": "no/where"}, "not_found", ""),
        ),
    ),
    "GetWorkflowRun": CallRow(
        _run,
        {"run.run_id": GIVEN, "run.status": pb.WORKFLOW_STATUS_RUNNING, "run.attempts": 2},
        repeat=SAME,
        bad=_BAD_RUN,
    ),
    "ListWorkflowRuns": CallRow(
        lambda _: {"task_queue": QUEUE, "workflow_type": TYPE, "page_size": 1, "page_token": ""},
        {"runs": GIVEN, "next_page_token": GIVEN, "total_count": 3},
        repeat=SAME,
        foreign=ELSEWHERE,
        bad=(
            ({"filter_status": "ASLEEP"}, "invalid_argument", "filter_status"),
            ({"page_size": -1}, "invalid_argument", "page_size"),
            ({"page_token": "x"}, "invalid_argument", "page_token"),
            ({"namespace_id": "no/where"}, "not_found", ""),
        ),
    ),
    "CancelWorkflowRun": CallRow(
        lambda scene: {"run_id": scene.run, "reason": "enough"}, {}, repeat=SAME, bad=_BAD_RUN
    ),
    "SignalWorkflowRun": CallRow(
        lambda scene: {
            "run_id": scene.run,
            "signal": pb.NewSignal(name="approve", payload=b"1", signal_id="s"),
        },
        {"is_new": True},
        repeat={"is_new": False},
        bad=(*_BAD_RUN, ({"signal": pb.NewSignal()}, "invalid_argument", "signal")),
    ),
    "ResumeWorkflowRun": CallRow(
        lambda scene: {"run_id": scene.paused},
        {"status": pb.WORKFLOW_STATUS_PENDING},
        repeat="wrong_state",
        bad=_BAD_RUN,
    ),
    "TerminateWorkflowRun": CallRow(
        _run, {"status": pb.WORKFLOW_STATUS_FAILED}, repeat="task_already_terminal", bad=_BAD_RUN
    ),
    "ExplainWorkflowRun": CallRow(
        _run,
        {"run_id": GIVEN, "status": GIVEN, "explanation": GIVEN},
        repeat=SAME,
        bad=_BAD_RUN,
        before=_completed,
    ),
    "GetJournal": CallRow(
        _run,
        {"page.end": 1, "page.entries": GIVEN},
        repeat=SAME,
        bad=(*_BAD_RUN, ({"after": -1}, "invalid_argument", "after")),
        before=_completed,
    ),
    "GetStepAttempt": CallRow(
        lambda scene: {"step_attempt_id": f"{scene.run}.0.1"},
        {
            "step_attempt.step_attempt_id": GIVEN,
            "step_attempt.run_id": GIVEN,
            "step_attempt.step_id": GIVEN,
            "step_attempt.attempt_number": 1,
            "step_attempt.status": "COMPLETED",
            "step_attempt.output": GIVEN,
            "step_attempt.finished_at": GIVEN,
        },
        repeat=SAME,
        bad=(
            ({"step_attempt_id": ""}, "invalid_argument", "step_attempt_id"),
            ({"step_attempt_id": UNKNOWN}, "invalid_argument", "step_attempt_id"),
            ({"step_attempt_id": f"{UNKNOWN}.0.1"}, "not_found", ""),
            ({"namespace_id": "no/where"}, "not_found", ""),
        ),
        before=_completed,
    ),
    "ListStepAttempts": CallRow(
        lambda scene: {"run_id": scene.run, "page_size": 20, "page_token": "", "step_id": ""},
        {"step_attempts": GIVEN, "next_page_token": ""},
        repeat=SAME,
        bad=(
            *_BAD_RUN,
            ({"step_id": "s\0"}, "invalid_argument", "step_id"),
            ({"page_size": -1}, "invalid_argument", "page_size"),
            ({"page_token": "x"}, "invalid_argument", "page_token"),
        ),
        before=_completed,
    ),
    "RetryWorkflowRun": CallRow(
        lambda scene: {"run_id": scene.finished, "new_run_id": UNKNOWN},
        {"run_id": UNKNOWN},
        repeat=SAME,
        bad=(
            *_BAD_RUN,
            ({"new_run_id": "x"}, "invalid_argument", "new_run_id"),
            ({"from_position": -1}, "invalid_argument", "from_position"),
        ),
    ),
    "RegisterWorker": CallRow(
        lambda _: {**WORKER, "instance_key": "one"},
        {"worker_id": GIVEN, "heartbeat_interval_secs": 10, "token": GIVEN},
        repeat=SAME,
        foreign=ELSEWHERE,
        bad=(
            ({"task_queue": ""}, "invalid_argument", "task_queue"),
            ({"workflow_types": []}, "invalid_argument", "workflow_types"),
            ({"hostname": "h\0"}, "invalid_argument", "hostname"),
            ({"pid": -1}, "invalid_argument", "pid"),
            ({"version": "v\0"}, "invalid_argument", "version"),
            ({"max_concurrent": -1}, "invalid_argument", "max_concurrent"),
            ({"labels": {"": ""}}, "invalid_argument", "labels"),
            ({"namespace_id": "no/where"}, "not_found", ""),
        ),
    ),
    "WorkerHeartbeat": CallRow(
        lambda scene: {
            "worker_id": scene.worker,
            "active_count": 1,
            "completed_delta": 3,
            "failed_delta": 1,
            "token": scene.token,
        },
        {"accepted": True, "should_drain": True, "token": GIVEN},
        repeat="token_mismatch",
        foreign="worker_inactive",
        other="token_mismatch",
        bad=(
            ({"worker_id": "x"}, "invalid_argument", "worker_id"),
            ({"worker_id": UNKNOWN}, "worker_inactive", ""),
            ({"active_count": -1}, "invalid_argument", "active_count"),
            ({"completed_delta": -1}, "invalid_argument", "completed_delta"),
            ({"failed_delta": -1}, "invalid_argument", "failed_delta"),
        ),
        before=Scene.drain,
    ),
    "DeregisterWorker": CallRow(
        lambda scene: {"worker_id": scene.worker, "drain": True},
        {},
        repeat=SAME,
        foreign="worker_inactive",
        bad=(
            ({"worker_id": "x"}, "invalid_argument", "worker_id"),
            ({"worker_id": UNKNOWN}, "worker_inactive", ""),
            ({"drain_deadline": Duration(seconds=-1)}, "invalid_argument", "drain_deadline"),
        ),
    ),
    "ListWorkers": CallRow(
        lambda _: {"task_queue": "", "filter_status": "ONLINE", "page_size": 1, "page_token": ""},
        {"workers": GIVEN, "next_page_token": GIVEN, "total_count": 2},
        repeat=SAME,
        foreign=ELSEWHERE,
        bad=(
            ({"filter_status": "BUSY"}, "invalid_argument", "filter_status"),
            ({"page_size": -1}, "invalid_argument", "page_size"),
            ({"page_token": "x"}, "invalid_argument", "page_token"),
            ({"namespace_id": "no/where"}, "not_found", ""),
        ),
    ),
    "GetWorker": CallRow(
        lambda scene: {"worker_id": scene.worker},
        {
            "worker.worker_id": GIVEN,
            "worker.namespace_id": NAMESPACE,
            "worker.task_queue": QUEUE,
            "worker.status": 1,
            "worker.hostname": "host-1",
            "worker.pid": 7,
            "worker.version": "1.2.3",
            "worker.workflow_types": [TYPE],
            "worker.max_concurrent": 5,
            "worker.active_count": 1,
            "worker.total_completed": 2,
            "worker.total_failed": 1,
            "worker.registered_at": GIVEN,
            "worker.last_heartbeat_at": GIVEN,
            "worker.labels": {"region": "north"},
        },
        repeat=SAME,
        bad=(
            ({"worker_id": "x"}, "invalid_argument", "worker_id"),
            ({"worker_id": UNKNOWN}, "not_found", ""),
        ),
    ),
    "PollActivity": CallRow(
        lambda scene: {
            "worker_id": scene.worker,
            "task_queue": QUEUE,
            "supported_workflow_types": [TYPE],
            "wait": Duration(),
        },
        {"run_id": GIVEN, "workflow_type": TYPE, "workflow_input": b"[1]", "tasks": GIVEN},
        repeat={"run_id": "", "tasks": []},
        foreign="worker_inactive",
        other="invalid_argument",
        bad=(
            ({"worker_id": "x"}, "invalid_argument", "worker_id"),
            ({"worker_id": UNKNOWN}, "worker_inactive", ""),
            ({"task_queue": OTHER_QUEUE}, "invalid_argument", "task_queue"),
            ({"supported_workflow_types": []}, "invalid_argument", "supported_workflow_types"),
            ({"supported_workflow_types": ["fax"]}, "invalid_argument", "supported_workflow_types"),
        ),
        before=Scene.start,
    ),
    "BeginStep": CallRow(
        lambda scene: _step(scene, input=b"[7]"),
        {"should_execute": True, "step_attempt": 1},
        repeat=SAME,
        stale="attempt_mismatch",
        other="attempt_mismatch",
        bad=(*_BAD_STEP, ({"input": bytes(2 * 2**20 + 1)}, "payload_too_large", "")),
    ),
    "CompleteStep": CallRow(
        lambda scene: _step(scene, output=b"12"),
        {},
        repeat=SAME,
        stale="attempt_mismatch",
        other="attempt_mismatch",
        bad=(
            *_BAD_STEP,
            ({"output": bytes(2 * 2**20 + 1)}, "payload_too_large", ""),
            ({"output_encoding": "a b"}, "invalid_argument", "output_encoding"),
        ),
    ),
    "FailStep": CallRow(
        lambda scene: _step(scene, error=ERROR),
        {"will_retry": True, "retry_at_ms": GIVEN, "retry_after_ms": 200, "has_yielded": False},
        repeat=SAME,
        stale="attempt_mismatch",
        other="attempt_mismatch",
        bad=(
            *_BAD_STEP,
            ({"error": None}, "invalid_argument", "error"),
            ({"error": task_pb2.TaskError(category=99)}, "invalid_argument", "error.category"),  # type: ignore[arg-type]  # no such category
            (
                {"retry": task_pb2.RetryPolicy(initial_interval_ms=-1)},
                "invalid_argument",
                "retry.initial_interval_ms",
            ),
        ),
    ),
    "CompleteWorkflow": CallRow(
        lambda scene: {**_held(scene), "output": b"12"},
        {},
        repeat=SAME,
        stale="attempt_mismatch",
        other="attempt_mismatch",
        bad=(*_BAD_HOLDER, ({"output": bytes(2 * 2**20 + 1)}, "payload_too_large", "")),
    ),
    "FailWorkflow": CallRow(
        lambda scene: {**_held(scene), "error": ERROR},
        {},
        repeat=SAME,
        stale="attempt_mismatch",
        other="attempt_mismatch",
        bad=(*_BAD_HOLDER, ({"error": None}, "invalid_argument", "error")),
    ),
    "ScheduleSleep": CallRow(
        lambda scene: _step(scene, duration=Duration(seconds=1, nanos=5_000_000)),
        {"has_yielded": True, "wake_at_ms": GIVEN},
        repeat=SAME,
        stale="attempt_mismatch",
        other="attempt_mismatch",
        bad=(
            *_BAD_STEP,
            ({"duration": Duration(seconds=-1)}, "invalid_argument", "duration"),
            ({"duration": Duration(nanos=-1)}, "invalid_argument", "duration"),
            ({"duration": Duration(seconds=2**62)}, "invalid_argument", "duration"),
        ),
    ),
    "HealthCheck": CallRow(
        lambda _: {},
        {"status": pb.HealthCheckResponse.SERVING_STATUS_SERVING, "timestamp": GIVEN},
        repeat=SAME,
        foreign="",
    ),
}

# Messages as clients of other makers know them: the fields by their numbers, from 1 on.
MESSAGES: Final[dict[str, str]] = {
    "Worker": "worker_id namespace_id task_queue status hostname pid version workflow_types "
    "max_concurrent active_count total_completed total_failed registered_at last_heartbeat_at "
    "labels",
    "RegisterWorkerRequest": "namespace_id task_queue workflow_types hostname pid version "
    "max_concurrent labels",
    "RegisterWorkerResponse": "worker_id heartbeat_interval_secs",
    "WorkerHeartbeatRequest": "worker_id active_count completed_delta failed_delta",
    "WorkerHeartbeatResponse": "accepted should_drain",
    "DeregisterWorkerRequest": "worker_id drain",
    "ListWorkersRequest": "namespace_id task_queue filter_status page_size page_token",
    "ListWorkersResponse": "workers next_page_token total_count",
    "GetWorkerRequest": "worker_id",
    "GetWorkerResponse": "worker",
    "PollActivityRequest": "worker_id task_queue namespace_id supported_workflow_types",
    "PollActivityResponse": "run_id workflow_type workflow_input",
}
# Of those that are no text.
TYPES: Final[dict[str, int]] = {
    **dict.fromkeys(("status",), FieldDescriptor.TYPE_ENUM),
    **dict.fromkeys(("accepted", "should_drain", "drain"), FieldDescriptor.TYPE_BOOL),
    **dict.fromkeys(("total_completed", "total_failed"), FieldDescriptor.TYPE_INT64),
    **dict.fromkeys(("workflow_input",), FieldDescriptor.TYPE_BYTES),
    **dict.fromkeys(
        ("registered_at", "last_heartbeat_at", "labels", "workers", "worker"),
        FieldDescriptor.TYPE_MESSAGE,
    ),
    **dict.fromkeys(
        (
            *("pid", "max_concurrent", "active_count", "completed_delta", "failed_delta"),
            *("heartbeat_interval_secs", "page_size", "total_count"),
        ),
        FieldDescriptor.TYPE_INT32,
    ),
}
STATUSES: Final = ("UNSPECIFIED", "ONLINE", "DRAINING", "OFFLINE")
# A heartbeat of one run has become part of that of its worker.
METHODS: Final = (
    "StartWorkflow GetWorkflowRun ListWorkflowRuns CancelWorkflowRun GetStepAttempt "
    "ListStepAttempts RegisterWorker WorkerHeartbeat DeregisterWorker ListWorkers GetWorker "
    "PollActivity BeginStep CompleteStep FailStep CompleteWorkflow FailWorkflow ScheduleSleep "
    "HealthCheck"
)
