"""A worker without the SDK: nothing but the generated code, and one call for each step.

``python plain_worker.py 7`` starts a run for order 7, works until the run has ended, and says how.
Kill it and start it again with the same number: the steps that were recorded are not done again.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration

from tenure.v1 import task_pb2
from tenure.v1 import workflow_service_pb2 as pb
from tenure.v1.workflow_service_pb2_grpc import WorkflowServiceStub

TYPE, QUEUE = "plain_order", "plain"
# The same request again is safe, whatever became of the first one.
REPEATABLE = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED
# The run belongs to somebody else by now, or has ended.
LOST = grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND


class Yielded(Exception):
    """The attempt is over; a poll brings the run back when its time has come."""


class StepFailed(Exception):
    """A step has failed for good."""


def call(method: Any, request: Any) -> Any:
    """Make a call, and make it again while the server cannot answer."""
    while True:
        try:
            return method(request, timeout=90)
        except grpc.RpcError as error:
            if error.code() not in REPEATABLE:
                raise
            time.sleep(0.2)


class Run:
    """A run that this worker holds."""

    def __init__(self, stub: Any, worker_id: str, task: task_pb2.AssignedTask) -> None:
        self.stub = stub
        self.input = json.loads(task.input)
        self.holder: dict[str, Any] = {
            "run_id": task.task_id,
            "worker_id": worker_id,
            "attempt": task.attempt,
        }

    def step(self, step_id: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Do a step that was not done before, and return its output."""
        step = {**self.holder, "step_id": step_id}
        while True:
            begun = call(self.stub.BeginStep, pb.BeginStepRequest(**step))
            if begun.has_yielded:
                raise Yielded
            if begun.HasField("error"):
                raise StepFailed(f"{step_id}: {begun.error.message}")
            if not begun.should_execute:
                return json.loads(begun.cached_result)
            try:
                output = function(*arguments)
            except Exception as problem:
                self.step_failed(step, problem)
            else:
                done = pb.CompleteStepRequest(**step, output=json.dumps(output).encode())
                call(self.stub.CompleteStep, done)
                return output

    def step_failed(self, step: dict[str, Any], problem: Exception) -> None:
        """Report a failure, and wait for the next attempt; the last one is told by BeginStep."""
        error = task_pb2.TaskError(message=str(problem), type=type(problem).__name__)
        answer = call(self.stub.FailStep, pb.FailStepRequest(**step, error=error))
        if answer.has_yielded:
            raise Yielded
        time.sleep(answer.retry_after_ms / 1_000)

    def sleep(self, step_id: str, seconds: int) -> None:
        """Sleep once, however often this is called in later attempts."""
        duration = Duration(seconds=seconds)
        request = pb.ScheduleSleepRequest(**self.holder, step_id=step_id, duration=duration)
        if call(self.stub.ScheduleSleep, request).has_yielded:
            raise Yielded

    def carry_out(self, body: Callable[["Run"], Any]) -> None:
        """Run the code of a run from its start to its end, or until it yields."""
        try:
            output = json.dumps(body(self)).encode()
            call(
                self.stub.CompleteWorkflow, pb.CompleteWorkflowRequest(**self.holder, output=output)
            )
        except Yielded:
            print("yielded")
        except StepFailed as problem:
            error = task_pb2.TaskError(message=str(problem), type="StepFailed")
            call(self.stub.FailWorkflow, pb.FailWorkflowRequest(**self.holder, error=error))
        except grpc.RpcError as error:
            if error.code() not in LOST:
                raise
            print("dropped")


class Worker:
    """Polls for runs of one type, while a thread tells the server that this process is alive."""

    def __init__(self, stub: Any) -> None:
        self.stub = stub
        request = pb.RegisterWorkerRequest(task_queue=QUEUE, workflow_types=[TYPE])
        self.registered = call(stub.RegisterWorker, request)
        self.ended = threading.Event()
        threading.Thread(target=self.beat, daemon=True).start()

    def beat(self) -> None:
        token = self.registered.token
        while not self.ended.wait(self.registered.heartbeat_interval_ms / 1_000):
            beat = pb.WorkerHeartbeatRequest(worker_id=self.registered.worker_id, token=token)
            token = call(self.stub.WorkerHeartbeat, beat).token

    def work(self, body: Callable[[Run], Any], is_done: Callable[[], bool]) -> None:
        worker_id = self.registered.worker_id
        poll = pb.PollActivityRequest(
            worker_id=worker_id,
            task_queue=QUEUE,
            supported_workflow_types=[TYPE],
            wait=Duration(seconds=1),
        )
        while not is_done():
            for task in call(self.stub.PollActivity, poll).tasks:
                Run(self.stub, worker_id, task).carry_out(body)
        self.ended.set()
        call(self.stub.DeregisterWorker, pb.DeregisterWorkerRequest(worker_id=worker_id))


# -- A workflow: charge, wait for a second, ship

answers = iter(["busy"])


def charge(order: int) -> str:
    if next(answers, "") == "busy":
        raise ConnectionError("the bank does not answer")
    print(f"charge order {order}")
    return f"receipt {order}"


def ship(order: int, receipt: str) -> str:
    print(f"ship order {order} with {receipt}")
    return f"parcel {order}"


def fulfil(run: Run) -> str:
    order = run.input
    receipt = run.step("charge", charge, order)
    run.sleep("cool down", 1)
    return str(run.step("ship", ship, order, receipt))


def main(order: int) -> None:
    target = os.environ.get("TENURE_TARGET", "127.0.0.1:7301")
    with grpc.insecure_channel(target) as channel:
        stub: Any = WorkflowServiceStub(channel)
        start = pb.StartWorkflowRequest(
            workflow_type=TYPE,
            task_queue=QUEUE,
            input=json.dumps(order).encode(),
            external_id=f"plain-{order}",
        )
        run_id = call(stub.StartWorkflow, start).run_id

        def shown() -> pb.WorkflowRun:
            run = call(stub.GetWorkflowRun, pb.GetWorkflowRunRequest(run_id=run_id)).run
            assert isinstance(run, pb.WorkflowRun)
            return run

        Worker(stub).work(fulfil, lambda: shown().HasField("finished_at"))
        print(json.loads(shown().output))


if __name__ == "__main__":
    main(int(sys.argv[1]))
