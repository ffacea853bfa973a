"""A real server, real workers, and runs that are started in its engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from tenure import Worker
from tenure.core.task.record import NewTask, Spec, TaskKind
from tenure.core.task.retry import RetryPolicy
from tenure.engine.clock import SystemClock
from tenure.engine.read.run import read_journal
from tenure.engine.run.command import CancelRun, NewSignal, SignalRun, StartRun, TerminateRun
from tenure.sdk.workflow.definition import Workflow
from tenure.v1 import task_pb2
from tests.bounds import WAIT_S
from tests.polling import eventually
from tests.sdk.worker.rig import Rig

NAMESPACE: Final = "default/default"
SPEC: Final = Spec(kind=TaskKind.WORKFLOW, retry=RetryPolicy(maximum_attempts=1), encoding="json")
_OVER: Final = {
    task_pb2.TASK_STATE_SUCCEEDED,
    task_pb2.TASK_STATE_FAILED,
    task_pb2.TASK_STATE_CANCELLED,
}


class RunStage:
    """What clients and operators do with runs."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig

    @asynccontextmanager
    async def worker(self, *workflows: Workflow[..., Any], **options: Any) -> AsyncIterator[Worker]:
        """Run a worker until the block ends."""
        made = Worker(self.rig.proxy.address, workflows=workflows, **options)
        running = asyncio.create_task(made.run(handle_signals=False))
        try:
            await eventually(lambda: made.is_registered)
            yield made
        finally:
            made.request_shutdown("1ms")
            async with asyncio.timeout(WAIT_S):
                await asyncio.wait([running])

    async def start(self, workflow: Workflow[..., Any], **arguments: object) -> str:
        """Start a run and return its id."""
        new = NewTask(
            id=SystemClock().new_id(),
            type=workflow.name,
            queue="default",
            spec=SPEC,
            input=json.dumps(arguments).encode(),
        )
        answer = await self.rig.engine.submit(StartRun(namespace=NAMESPACE, new=new))
        return answer.task_id

    async def ended(self, run_id: str) -> task_pb2.Task:
        """Wait for the end of a run."""

        async def is_over() -> bool:
            return (await self.rig.task(run_id)).state in _OVER

        await eventually(is_over, f"run {run_id} ended")
        return await self.rig.task(run_id)

    async def result(self, run_id: str) -> object:
        """Wait for the end of a run and return what its body returned."""
        task = await self.ended(run_id)
        assert task.state == task_pb2.TASK_STATE_SUCCEEDED, task.error
        return json.loads(task.output)

    async def run(self, workflow: Workflow[..., Any], **arguments: object) -> object:
        """Start a run and return what its body returned."""
        return await self.result(await self.start(workflow, **arguments))

    async def signal(self, run_id: str, name: str, value: object) -> None:
        signal = NewSignal(name=name, payload=json.dumps(value).encode(), encoding="json")
        await self.rig.engine.submit(SignalRun(namespace=NAMESPACE, run_id=run_id, signal=signal))

    async def keys(self, run_id: str) -> list[str]:
        """Return the kind and the key of each entry of its journal."""
        page = await read_journal(self.rig.store, namespace=NAMESPACE, run_id=run_id)
        return [f"{each.kind.name.lower()} {each.key}" for each in page.entries]

    async def cancel(self, run_id: str) -> None:
        await self.rig.engine.submit(CancelRun(namespace=NAMESPACE, run_id=run_id))

    async def terminate(self, run_id: str) -> None:
        await self.rig.engine.submit(TerminateRun(namespace=NAMESPACE, run_id=run_id))
