"""The handle of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from tenure.core.task.record import TaskState
from tenure.sdk.activity.definition import Activity, signature_of
from tenure.sdk.client import method as m
from tenure.sdk.client import view
from tenure.sdk.client.client_state import ClientState, new_task_id, seconds
from tenure.sdk.client.explanation import Explanation
from tenure.sdk.client.result_wait import OnProgress, ResultWait
from tenure.sdk.client.task_stream import Waiter
from tenure.sdk.client.view import AttemptInfo, TaskInfo
from tenure.sdk.duration import Duration
from tenure.sdk.payload import UserValue
from tenure.v1 import task_service_pb2 as pb

if TYPE_CHECKING:
    from tenure.sdk.client.client import Client

R_co = TypeVar("R_co", covariant=True)


class Handle(Generic[R_co]):
    """A task that was enqueued: its result, its state, and what can be done with it."""

    __slots__ = ("_result", "_state", "task_id")
    task_id: str
    """The id of the task."""

    def __init__(self, state: ClientState, task_id: str, result: UserValue) -> None:
        """Use ``Client.enqueue`` or ``Client.handle``; ``result`` is an activity or a type."""
        self._state = state
        self._result = result
        self.task_id = task_id

    def __repr__(self) -> str:
        return f"<Handle of task {self.task_id}>"

    async def result(
        self,
        *,
        timeout: Duration | None = None,  # noqa: ASYNC109 (people look for it here)
        on_progress: OnProgress | None = None,
    ) -> R_co:
        """Wait for the end of the task and return its result.

        A task that did not succeed raises ``TaskFailed`` or one of its subclasses, with the
        failure in the worker as the cause. After ``timeout`` a ``TimeoutError`` is raised and the
        task goes on. Without a timeout it waits as long as the task takes, also while the server
        is restarted.
        ``on_progress`` is called with each new progress of the activity.
        """
        limit_s = None if timeout is None else seconds(timeout, "timeout")
        return await self._wait(limit_s, on_progress)

    async def describe(self) -> TaskInfo:
        """Return the present state of the task, with its payloads."""
        request = pb.GetTaskRequest(namespace_id=self._state.namespace, task_id=self.task_id)
        return view.task_info((await self._state.ask(m.GET, request)).task, self._state.converter)

    async def attempts(self) -> list[AttemptInfo]:
        """Return the attempts of the task in their order."""
        request = pb.ListAttemptsRequest(namespace_id=self._state.namespace, task_id=self.task_id)
        answer = await self._state.ask(m.ATTEMPTS, request)
        return [view.attempt_info(each, self._state.converter) for each in answer.attempts]

    async def explain(self) -> Explanation:
        """Return why the task is not running now: the decisive reason first, with what to do.

        >>> print(await handle.explain())
        """
        return await self._state.explain(self.task_id)

    async def cancel(self, reason: str = "") -> TaskState:
        """Cancel the task; return its state. A running activity is told, and stops by itself."""
        request = pb.CancelTaskRequest(
            namespace_id=self._state.namespace, task_id=self.task_id, reason=reason
        )
        state = await self._state.change(m.CANCEL, request, lambda found: found == "CANCELLED")
        return view.state_of(state)

    async def pause(self) -> TaskState:
        """Pause the task: no worker gets it until it is resumed; return its state."""
        request = pb.PauseTaskRequest(namespace_id=self._state.namespace, task_id=self.task_id)
        state = await self._state.change(m.PAUSE, request, lambda found: found == "PAUSED")
        return view.state_of(state)

    async def resume(self) -> TaskState:
        """Resume a paused task; return its state."""
        request = pb.ResumeTaskRequest(namespace_id=self._state.namespace, task_id=self.task_id)
        state = await self._state.change(m.RESUME, request, lambda found: found != "PAUSED")
        return view.state_of(state)

    async def terminate(self) -> TaskState:
        """End the task at once, without waiting for its worker; return its state."""
        request = pb.TerminateTaskRequest(namespace_id=self._state.namespace, task_id=self.task_id)
        state = await self._state.change(m.TERMINATE, request, lambda found: found == "FAILED")
        return view.state_of(state)

    async def retry(self) -> Handle[R_co]:
        """Enqueue a finished task again, as a new task; return the handle of that."""
        new_id = new_task_id()
        request = pb.RetryTaskRequest(
            namespace_id=self._state.namespace, task_id=self.task_id, new_task_id=new_id
        )
        answer = await self._state.ask(m.RETRY, request)
        return Handle(self._state, answer.task_id, self._result)

    def _at(self, client: Client) -> Handle[R_co]:
        """Return the same task as another client sees it."""
        return Handle(client._state, self.task_id, self._result)  # noqa: SLF001 (of one package)

    async def _wait(
        self,
        limit_s: float | None,
        on_progress: OnProgress | None = None,
        waiter: Waiter | None = None,
    ) -> R_co:
        wait = ResultWait(self._state, self.task_id)
        result = await wait.end(limit_s, on_progress, waiter)
        wanted = self._result
        if isinstance(wanted, Activity):
            wanted = signature_of(wanted).result_type
        value: R_co = wait.value(result, wanted)
        return value
