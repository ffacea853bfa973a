"""A worker that speaks the plain protocol makes children, against a server that runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tenure.v1 import task_pb2
from tenure.v1 import task_service_pb2 as t
from tenure.v1 import workflow_service_pb2 as w
from tenure.v1.task_service_pb2_grpc import TaskServiceStub
from tenure.v1.workflow_service_pb2_grpc import WorkflowServiceStub
from tests.bounds import WAIT_S
from tests.wire.call import open_channel
from tests.wire.run_holder import ACTIVITIES, CHILD_RUN, Line, PollLine, RunHolder, SessionLine
from tests.wire.stage import STORES, open_stage

LINES: dict[str, Callable[[str], Line]] = {"session": SessionLine, "poll": PollLine}


@pytest.mark.parametrize("loses_answers", [False, True], ids=["answered", "lost"])
@pytest.mark.parametrize("mode", list(LINES))
@pytest.mark.parametrize("store", STORES)
async def test_a_run_makes_children_and_hears_of_each_once(
    store: str, mode: str, loses_answers: bool
) -> None:
    async with open_stage(store) as stage:
        server = await stage.server()
        await stage.worker(server.grpc)
        line = LINES[mode](server.grpc)
        channel = open_channel(server.grpc)
        try:
            runs = WorkflowServiceStub(channel)
            request = w.StartWorkflowRequest(workflow_type="parent", task_queue="default")
            run_id = (await runs.StartWorkflow(request)).run_id
            holder = RunHolder(line, loses_answers=loses_answers)
            async with asyncio.timeout(WAIT_S):
                ends = await holder.run_to_the_end(run_id)
            run = (await runs.GetWorkflowRun(w.GetWorkflowRunRequest(run_id=run_id))).run
            tasks = (await TaskServiceStub(channel).ListTasks(t.ListTasksRequest())).tasks
        finally:
            await line.close()
            await channel.close()
    assert set(ends) == {*ACTIVITIES, CHILD_RUN}
    assert {each.child.state for each in ends.values()} == {task_pb2.TASK_STATE_SUCCEEDED}
    assert ends[CHILD_RUN].content.output == b"sailed"
    assert sorted(each.pos for each in ends.values()) == [1, 2, 3, 4]
    assert (run.status, run.open_child_count) == (w.WORKFLOW_STATUS_COMPLETED, 0)
    # The run and its children, each once.
    children = {each.task_id: each.step_key for each in tasks if each.task_id != run_id}
    assert len(tasks) == 5
    assert children == {each.child.task_id: key for key, each in ends.items()}
    assert {each.parent_id for each in tasks if each.task_id != run_id} == {run_id}
