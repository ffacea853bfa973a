"""Explaining runs over gRPC."""

from __future__ import annotations

import pytest

from tenure.core.run.record import Wait
from tenure.engine.engine import Engine
from tenure.v1 import task_pb2
from tenure.v1 import task_service_pb2 as task_pb
from tenure.v1 import workflow_service_pb2 as pb
from tests.api.rpc.wire import Wire, open_wire, refused
from tests.engine.run.children import new_child, spawn_children
from tests.engine.run.runs import give_up_slot, running_run, start
from tests.engine.world import NAMESPACE, World

UNKNOWN = "019b0000-0000-7000-8000-ffffffffffff"


async def test_a_run_is_explained_with_the_task_that_it_waits_for(
    wire: Wire, world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker, external_id="order-42")
    (child_id,) = await spawn_children(engine, worker, run, new_child(world))
    wait = Wait("child", "resize", world.clock.now_ms(), child_id, "orders.py:52")
    await give_up_slot(world, engine, worker, run, waits=(wait,), wait_count=1)
    request = pb.ExplainWorkflowRunRequest(namespace_id=NAMESPACE, run_id="external:order-42")
    answer = await wire.workflows.ExplainWorkflowRun(request)
    assert (answer.run_id, pb.WorkflowStatus.Name(answer.status)) == (
        run.id,
        "WORKFLOW_STATUS_WAITING",
    )
    (reason,) = answer.reasons
    assert reason.evidence["site"] == "orders.py:52"
    (task,) = reason.tasks
    assert (task.task_id, task.type, task.status) == (child_id, "resize", "PENDING")
    assert task.kind == task_pb2.TASK_KIND_ACTIVITY
    assert [each.code for each in task.reasons] == ["no_worker_for_type"]
    assert task.reasons[0].message in answer.explanation
    # A call about tasks says the same.
    of_task = task_pb.ExplainTaskRequest(namespace_id=NAMESPACE, task_id=run.id)
    assert (await wire.tasks.ExplainTask(of_task)).reasons == answer.reasons


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"run_id": UNKNOWN}, "NOT_FOUND", "not_found"),
        ({"run_id": "external:order-1"}, "NOT_FOUND", "not_found"),
        ({"run_id": "x"}, "INVALID_ARGUMENT", "invalid_argument"),
        ({}, "INVALID_ARGUMENT", "invalid_argument"),
        ({"run_id": UNKNOWN, "namespace_id": "a/b/c"}, "INVALID_ARGUMENT", "invalid_argument"),
    ],
)
async def test_what_cannot_be_explained_is_refused(
    wire: Wire, fields: dict[str, str], status: str, code: str
) -> None:
    call = wire.workflows.ExplainWorkflowRun(pb.ExplainWorkflowRunRequest(**fields))
    found, refusal = await refused(call)
    assert (found, refusal.code) == (status, code)


async def test_a_task_is_no_run(wire: Wire) -> None:
    (task_id,) = await wire.enqueue()
    request = pb.ExplainWorkflowRunRequest(namespace_id=NAMESPACE, run_id=task_id)
    status, refusal = await refused(wire.workflows.ExplainWorkflowRun(request))
    assert (status, refusal.code) == ("NOT_FOUND", "not_found")


async def test_it_counts_against_the_rate_of_lists(world: World, engine: Engine) -> None:
    async with open_wire(engine, lists_per_s=1) as wire:
        run_id = await start(world, engine)
        request = pb.ExplainWorkflowRunRequest(namespace_id=NAMESPACE, run_id=run_id)
        await wire.workflows.ExplainWorkflowRun(request)
        _, refusal = await refused(wire.workflows.ExplainWorkflowRun(request))
    assert refusal.code == "rate_limited"
