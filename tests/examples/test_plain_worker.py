"""A worker without the SDK: the script, a kill in the middle, and a run that begins anew."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import grpc
import pytest

from examples.plain_worker import QUEUE, TYPE, Run, Worker, call
from tenure.v1 import task_pb2
from tenure.v1 import workflow_service_pb2 as pb
from tenure.v1.workflow_service_pb2_grpc import WorkflowServiceStub
from tests.cli.server import ServerProcess
from tests.examples.stage import FOLDER, Stage
from tests.polling import eventually_sync

STATUSES: Final = pb.WorkflowStatus


@pytest.fixture
def stub(server: ServerProcess) -> Iterator[Any]:
    with grpc.insecure_channel(server.grpc) as channel:
        yield WorkflowServiceStub(channel)


def start(stub: Any, content: object, **options: Any) -> str:
    request = pb.StartWorkflowRequest(
        workflow_type=TYPE,
        task_queue=QUEUE,
        input=json.dumps(content).encode(),
        options=task_pb2.TaskOptions(**options),
    )
    return str(call(stub.StartWorkflow, request).run_id)


def shown(stub: Any, run_id: str) -> pb.WorkflowRun:
    run: pb.WorkflowRun = call(stub.GetWorkflowRun, pb.GetWorkflowRunRequest(run_id=run_id)).run
    return run


def work(stub: Any, run_id: str, body: Callable[[Run], Any]) -> pb.WorkflowRun:
    """Work until a run has ended, and return it."""
    Worker(stub).work(body, lambda: shown(stub, run_id).HasField("finished_at"))
    return shown(stub, run_id)


def test_it_uses_nothing_but_the_generated_code() -> None:
    tree = ast.parse((FOLDER / "plain_worker.py").read_text())
    modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {
        each.name for node in ast.walk(tree) if isinstance(node, ast.Import) for each in node.names
    }
    ours = {each for each in modules if each.partition(".")[0] == "tenure"}
    assert ours == {"tenure.v1", "tenure.v1.workflow_service_pb2_grpc"}


def test_the_script_does_each_step_and_says_how_the_run_has_ended(stage: Stage) -> None:
    assert stage.run("plain_worker.py", "7") == [
        "charge order 7",
        "yielded",
        "ship order 7 with receipt 7",
        "parcel 7",
    ]


def test_a_script_that_is_killed_while_its_run_sleeps_does_no_step_twice(stage: Stage) -> None:
    with stage.script("plain_worker.py", "8") as first:
        eventually_sync(lambda: "yielded" in first.lines)
        first.process.kill()
        first.process.wait()
        assert "charge order 8" in first.lines
        rest = stage.run("plain_worker.py", "8")
    assert "charge order 8" not in rest
    assert rest[-1] == "parcel 8"


def test_a_run_with_a_retry_policy_really_begins_anew(stub: Any) -> None:
    tried: list[str] = []

    def charge() -> None:
        tried.append("charge")

    def ship() -> str:
        tried.append("ship")
        if tried.count("charge") == 1:
            raise ValueError("no stock")
        return "parcel"

    def body(run: Run) -> str:
        run.step("charge", charge)
        return str(run.step("ship", ship))

    retry = task_pb2.RetryPolicy(maximum_attempts=2, initial_interval_ms=10)
    ended = work(stub, start(stub, 1, retry=retry), body)
    assert (STATUSES.Name(ended.status), ended.generation, ended.output) == (
        "WORKFLOW_STATUS_COMPLETED",
        1,
        b'"parcel"',
    )
    # Three attempts of the step failed the run; the next generation has an empty journal.
    assert tried == ["charge", "ship", "ship", "ship", "charge", "ship"]


def test_a_run_without_one_fails_with_the_error_of_its_step(stub: Any) -> None:
    def body(run: Run) -> None:
        run.step("charge", lambda: 1 / 0)

    ended = work(stub, start(stub, 1), body)
    assert STATUSES.Name(ended.status) == "WORKFLOW_STATUS_FAILED"
    assert (ended.error.type, ended.error.message) == ("StepFailed", "charge: division by zero")
