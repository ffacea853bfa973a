"""A small worker that polls, written with nothing but the generated stubs."""

from __future__ import annotations

import threading
import time
import uuid
from typing import Any, Final, Self, cast

import grpc
from google.protobuf.duration_pb2 import Duration

from tenure.v1 import journal_pb2, task_pb2, task_service_pb2, workflow_service_pb2
from tenure.v1.task_service_pb2_grpc import TaskServiceStub
from tenure.v1.workflow_service_pb2_grpc import WorkflowServiceStub
from tests.bounds import ANSWER_S

_BEAT_SECONDS: Final = 0.05
TYPES: Final = ("echo", "bytes", "fail", "gate", "defer", "approval", "park", "parent")


class SmallWorker(threading.Thread):
    """Runs one task at a time until it is drained or the test has ended.

    ``echo`` returns its input, ``bytes`` some bytes, ``fail`` fails, ``defer`` leaves its end to
    others, and ``gate`` tells that it is half-way and goes on when the test opens ``gate``. Of runs
    ``approval`` publishes a state and waits for a signal, ``park`` does not fit its journal, and
    ``parent`` makes tasks: two that end, of a group of five, and two that nobody takes.
    """

    def __init__(self, target: str, queue: str, **labels: str) -> None:
        super().__init__(daemon=True)
        self.gate = threading.Event()
        self._stopped = threading.Event()
        self._queue = queue
        self._channel = grpc.insecure_channel(target)
        self._workers = WorkflowServiceStub(self._channel)
        self._tasks = TaskServiceStub(self._channel)
        registered = self._workers.RegisterWorker(
            workflow_service_pb2.RegisterWorkerRequest(
                task_queue=queue,
                workflow_types=TYPES,
                hostname="host",
                pid=7,
                version=f"{queue}-v1",
                labels=labels,
                max_concurrent=2,
            )
        )
        self.worker_id = registered.worker_id
        self._token = registered.token

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self.gate.set()
        self.join(ANSWER_S)
        self._channel.close()
        assert not self.is_alive()

    def run(self) -> None:
        """Poll, work and beat, one after the other."""
        is_draining = False
        while not is_draining and not self._stopped.is_set():
            for task in self._poll():
                self._finish(task)
            is_draining = self._beat()
        self._workers.DeregisterWorker(
            workflow_service_pb2.DeregisterWorkerRequest(worker_id=self.worker_id)
        )

    def _poll(self) -> list[task_pb2.AssignedTask]:
        request = workflow_service_pb2.PollActivityRequest(
            worker_id=self.worker_id,
            task_queue=self._queue,
            supported_workflow_types=TYPES,
            wait=Duration(nanos=200_000_000),
        )
        try:
            return list(self._workers.PollActivity(request).tasks)
        except grpc.RpcError as error:
            # A draining worker is told so, and asks its heartbeat.
            if cast("grpc.Call", error).code() is not grpc.StatusCode.FAILED_PRECONDITION:
                raise
            return []

    def _beat(self) -> bool:
        request = workflow_service_pb2.WorkerHeartbeatRequest(
            worker_id=self.worker_id, token=self._token
        )
        answer = self._workers.WorkerHeartbeat(request)
        self._token = answer.token
        return bool(answer.should_drain)

    def _finish(self, task: task_pb2.AssignedTask) -> None:
        finish = task_pb2.TaskFinish(task_id=task.task_id, attempt=task.attempt)
        finish.kind = task_pb2.FINISH_KIND_SUCCEEDED
        if task.type == "fail":
            finish.kind = task_pb2.FINISH_KIND_FAILED
            finish.error.message = "it \x1b[31mbroke\n  Why: forged\u202e"
            finish.error.type = "ValueError"
            finish.error.category = task_pb2.ERROR_CATEGORY_USER_CODE
        elif task.type == "defer":
            finish.kind = task_pb2.FINISH_KIND_DEFERRED
        elif task.type == "park":
            finish.kind = task_pb2.FINISH_KIND_PARKED
            finish.error.message = "at 3 the journal has charge, the code calls check"
            finish.error.type = "journal_mismatch"
        elif task.type == "approval" and task.attempt == 1:
            self._publish(task)
            finish.kind = task_pb2.FINISH_KIND_YIELDED
            finish.waits.add(kind="signal", key="approve", since_ms=1, site="expense.py:9")
            finish.waits.add(kind="timer", key="timeout", detail="1000")
            finish.wait_count = 3
        elif task.type == "parent" and task.attempt == 1:
            self._make_children(task)
            finish.kind = task_pb2.FINISH_KIND_YIELDED
            finish.patience_n = 10
        elif task.type == "gate" and self._is_cancelled(task):
            finish.kind = task_pb2.FINISH_KIND_CANCELLED
        elif task.type == "bytes":
            finish.output, finish.output_encoding = b"12", "bytes"
        else:
            finish.output = task.input
        request = task_service_pb2.FinishTasksRequest(worker_id=self.worker_id, items=[finish])
        self._tasks.FinishTasks(request)

    def _publish(self, task: task_pb2.AssignedTask) -> None:
        beat = task_pb2.TaskBeat(
            task_id=task.task_id, attempt=task.attempt, details=b'{"asked": "ann"}'
        )
        request = task_service_pb2.HeartbeatTasksRequest(worker_id=self.worker_id, items=[beat])
        self._tasks.HeartbeatTasks(request)

    def _make_children(self, task: task_pb2.AssignedTask) -> None:
        own = self._child("nobody", key="1/pack")
        items = [
            self._child(type_name, item=item)
            for item, type_name in enumerate(("echo", "fail", "nobody"))
        ]
        ref: dict[str, Any] = {"task_id": task.task_id, "attempt": 1}
        in_group: dict[str, Any] = {"group_key": "map:echo", "group_index": 1, "group_total": 5}
        spawns = [
            journal_pb2.SpawnReport(**ref, number=1, children=[own]),
            journal_pb2.SpawnReport(**ref, number=2, children=items, **in_group),
        ]
        request = task_service_pb2.ReportRunsRequest(worker_id=self.worker_id, spawns=spawns)
        answer = self._tasks.ReportRuns(request)
        assert not any(each.HasField("error") for each in answer.child_acks)

    def _child(self, type_name: str, **fields: Any) -> journal_pb2.NewChild:
        options = task_pb2.TaskOptions(start_to_close_ms=60_000)
        options.retry.maximum_attempts = 1
        task = task_pb2.NewTask(
            task_id=str(uuid.uuid4()), type=type_name, task_queue=self._queue, options=options
        )
        return journal_pb2.NewChild(task=task, **fields)

    def _is_cancelled(self, task: task_pb2.AssignedTask) -> bool:
        beat = task_pb2.TaskBeat(
            task_id=task.task_id, attempt=task.attempt, progress_percent=50.0, message="half-way"
        )
        request = task_service_pb2.HeartbeatTasksRequest(worker_id=self.worker_id, items=[beat])
        deadline = time.monotonic() + ANSWER_S
        while True:
            if self._tasks.HeartbeatTasks(request).results[0].should_cancel:
                return True
            if self.gate.wait(_BEAT_SECONDS) or time.monotonic() > deadline:
                return False
