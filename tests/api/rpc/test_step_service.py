"""Steps of a run over gRPC: what the messages say beside what the table of calls tests."""

from __future__ import annotations

from typing import Any, Final

import pytest
from google.protobuf.duration_pb2 import Duration

from tenure.core.limits import DURATION_MS_MAX
from tenure.engine.engine import Engine
from tenure.engine.services.due_tasks import DueTasks
from tenure.v1 import task_pb2
from tenure.v1 import workflow_service_pb2 as pb
from tests.api.rpc.wire import Wire, refused
from tests.engine.world import NAMESPACE, QUEUE, World

FATAL: Final = task_pb2.TaskError(
    message="bad row",
    type="ValueError",
    category=task_pb2.ERROR_CATEGORY_DATA_QUALITY,
    details=b"{}",
)
FAULT: Final = task_pb2.TaskError(message="boom", type="OSError")


class Holder:
    """A worker that calls for the one run that it holds."""

    def __init__(self, wire: Wire, worker: str, run_id: str, attempt: int) -> None:
        self.wire = wire
        self.worker = worker
        self.run_id = run_id
        self.attempt = attempt

    async def call(self, method: str, step_id: str = "charge", **fields: Any) -> Any:
        given = {
            "namespace_id": NAMESPACE,
            "run_id": self.run_id,
            "worker_id": self.worker,
            "attempt": self.attempt,
            **fields,
        }
        if step_id:
            given["step_id"] = step_id
        request = getattr(pb, f"{method}Request")(**given)
        return await getattr(self.wire.workflows, method)(request)

    async def run(self) -> pb.WorkflowRun:
        request = pb.GetWorkflowRunRequest(namespace_id=NAMESPACE, run_id=self.run_id)
        run: pb.WorkflowRun = (await self.wire.workflows.GetWorkflowRun(request)).run
        return run

    async def polled(self) -> Holder:
        (task,) = await self.wire.poll(self.worker)
        return Holder(self.wire, self.worker, task.task_id, task.attempt)


async def hold(wire: Wire, **options: Any) -> Holder:
    """Start a run and poll it."""
    request = pb.StartWorkflowRequest(
        namespace_id=NAMESPACE,
        workflow_type="mail",
        task_queue=QUEUE,
        options=task_pb2.TaskOptions(**options),
    )
    run_id = (await wire.workflows.StartWorkflow(request)).run_id
    worker = (await wire.register()).worker_id
    return await Holder(wire, worker, run_id, 0).polled()


@pytest.fixture
async def holder(wire: Wire) -> Holder:
    return await hold(wire)


async def test_a_recorded_output_comes_back_with_its_encoding(holder: Holder) -> None:
    first = await holder.call("BeginStep", input=b"[1]")
    assert first == pb.BeginStepResponse(should_execute=True, step_attempt=1)
    await holder.call("CompleteStep", output=b"\x81", output_encoding="msgpack")
    assert await holder.call("BeginStep") == pb.BeginStepResponse(
        cached_result=b"\x81", output_encoding="msgpack", step_attempt=1
    )


async def test_a_recorded_error_comes_back_as_it_was_reported(holder: Holder) -> None:
    assert await holder.call("FailStep", error=FATAL) == pb.FailStepResponse()
    again = await holder.call("BeginStep")
    assert again == pb.BeginStepResponse(error=FATAL, step_attempt=1)


async def test_a_policy_needs_only_what_differs_from_the_default(holder: Holder) -> None:
    twice = task_pb2.RetryPolicy(maximum_attempts=2)
    first = await holder.call("FailStep", error=FAULT, retry=twice)
    assert (first.will_retry, first.retry_after_ms) == (True, 200)
    await holder.call("BeginStep")
    assert not (await holder.call("FailStep", error=FAULT, retry=twice)).will_retry


async def test_a_late_attempt_is_told_by_every_call_until_its_time_has_come(
    holder: Holder, world: World, engine: Engine
) -> None:
    hour = task_pb2.TaskError(message="closed", next_retry_delay_ms=3_600_000)
    answer = await holder.call("FailStep", error=hour)
    at_ms = world.clock.now_ms() + 3_600_000
    assert answer == pb.FailStepResponse(
        will_retry=True, retry_at_ms=at_ms, retry_after_ms=3_600_000, has_yielded=True
    )
    run = await holder.run()
    assert run.status == pb.WORKFLOW_STATUS_SLEEPING
    assert run.wake_up_at.ToMilliseconds() == at_ms
    signal = pb.SignalWorkflowRunRequest(
        namespace_id=NAMESPACE, run_id=holder.run_id, signal=pb.NewSignal(name="go")
    )
    await holder.wire.workflows.SignalWorkflowRun(signal)
    early = await holder.polled()
    assert await early.call("BeginStep") == pb.BeginStepResponse(has_yielded=True, next_at_ms=at_ms)
    await world.advance(3_600_000)
    await world.round(DueTasks(), engine)
    worker = (await holder.wire.register()).worker_id
    late = await Holder(holder.wire, worker, "", 0).polled()
    assert (await late.call("BeginStep")).step_attempt == 2


@pytest.mark.parametrize(
    ("duration", "ms"),
    [
        (Duration(nanos=1), 1),
        (Duration(nanos=1_000_000), 1),
        (Duration(seconds=2, nanos=500_000_001), 2_501),
        (Duration(seconds=DURATION_MS_MAX // 1_000), DURATION_MS_MAX),
    ],
)
async def test_a_run_never_sleeps_for_less_than_it_was_told(
    holder: Holder, world: World, duration: Duration, ms: int
) -> None:
    answer = await holder.call("ScheduleSleep", duration=duration)
    expected = pb.ScheduleSleepResponse(has_yielded=True, wake_at_ms=world.clock.now_ms() + ms)
    assert answer == expected


@pytest.mark.parametrize("fields", [{}, {"duration": Duration()}])
async def test_no_sleep_at_all_lets_the_run_go_on(
    holder: Holder, world: World, fields: dict[str, Any]
) -> None:
    answer = await holder.call("ScheduleSleep", **fields)
    assert answer == pb.ScheduleSleepResponse(wake_at_ms=world.clock.now_ms())
    await holder.call("CompleteWorkflow", "", output=b"1")
    assert (await holder.run()).status == pb.WORKFLOW_STATUS_COMPLETED


async def test_a_run_without_an_output_has_none(holder: Holder) -> None:
    await holder.call("CompleteWorkflow", "", output_encoding="msgpack")
    run = await holder.run()
    assert (run.status, run.output) == (pb.WORKFLOW_STATUS_COMPLETED, b"")


async def test_a_failed_run_begins_anew_only_with_a_policy(
    wire: Wire, world: World, engine: Engine
) -> None:
    plain = await hold(wire)
    await plain.call("FailWorkflow", "", error=FATAL)
    run = await plain.run()
    assert (run.status, run.error) == (pb.WORKFLOW_STATUS_FAILED, FATAL)
    retry = task_pb2.RetryPolicy(maximum_attempts=2, initial_interval_ms=1_000)
    first = await hold(wire, retry=retry)
    await first.call("CompleteStep", output=b"1")
    await first.call("FailWorkflow", "", error=FAULT)
    assert (await first.run()).status == pb.WORKFLOW_STATUS_PENDING
    await world.advance(1_000)
    await world.round(DueTasks(), engine)
    again = await first.polled()
    # The journal is empty, so the step is done again.
    assert (await again.call("BeginStep")).should_execute
    assert ((await again.run()).generation, (await again.run()).entry_count) == (1, 1)
    await again.call("FailWorkflow", "", error=FAULT)
    assert (await again.run()).status == pb.WORKFLOW_STATUS_FAILED


async def test_a_task_that_is_no_run_has_no_steps(wire: Wire) -> None:
    (task_id,) = await wire.enqueue()
    worker = (await wire.register()).worker_id
    (task,) = await wire.poll(worker)
    holder = Holder(wire, worker, task_id, task.attempt)
    for method, step_id in (("BeginStep", "charge"), ("CompleteWorkflow", "")):
        assert (await refused(holder.call(method, step_id)))[1].code == "not_found"
    assert await wire.state(task_id) == "DISPATCHED"
