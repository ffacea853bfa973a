"""The handle of a task."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from tenure.core.task.record import TaskState
from tenure.errors import DeadlineExceeded, Unavailable
from tenure.sdk import failure
from tenure.sdk.activity.definition import Activity, signature_of
from tenure.sdk.client import method as m
from tenure.sdk.client import view
from tenure.sdk.client.client_state import ClientState, new_task_id, seconds
from tenure.sdk.client.task_stream import Waiter
from tenure.sdk.client.view import AttemptInfo, Explanation, TaskInfo
from tenure.sdk.duration import Duration
from tenure.sdk.payload import BYTES, Payload, PayloadError, UserValue
from tenure.sdk.progress import TaskProgress
from tenure.v1 import task_pb2
from tenure.v1 import task_service_pb2 as pb

if TYPE_CHECKING:
    from tenure.sdk.client.client import Client

R_co = TypeVar("R_co", covariant=True)

OnProgress = Callable[[TaskProgress], object]
"""Called with each new progress; an async function is awaited."""

# How often the progress of a task is polled.
_POLL_SECONDS: Final = 0.5
_SUCCEEDED: Final = task_pb2.TASK_STATE_SUCCEEDED


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
        return view.task_info(await self._get(), self._state.converter)

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
        clock = asyncio.timeout(limit_s)
        try:
            async with clock:
                return self._value(await self._end(on_progress, waiter))
        except TimeoutError:
            if not clock.expired():
                raise
            message = (
                f"Task {self.task_id} has not ended within {limit_s:g} s. The task goes on; "
                "handle.explain() says what it waits for."
            )
            raise TimeoutError(message) from self._state.results.problem

    async def _end(
        self, on_progress: OnProgress | None, waiter: Waiter | None = None
    ) -> pb.TaskResult:
        waiting = self._state.wait(self.task_id, waiter)
        if on_progress is None:
            return await waiting
        teller = _Teller(on_progress)
        ending = asyncio.ensure_future(waiting)
        telling = asyncio.ensure_future(self._watch_progress(teller))
        try:
            # A failure of either ends the wait: the caller gets an exception of the callback.
            await asyncio.wait((ending, telling), return_when=asyncio.FIRST_COMPLETED)
            if telling.done():
                telling.result()
            result = await ending
        finally:
            for each in (ending, telling):
                each.cancel()
            await asyncio.gather(ending, telling, return_exceptions=True)
        # A short task may have ended between two polls.
        await self._look(teller)
        return result

    async def _watch_progress(self, teller: _Teller) -> None:
        while True:
            await self._look(teller)
            await asyncio.sleep(_POLL_SECONDS)

    async def _look(self, teller: _Teller) -> None:
        # The wait for the result goes on while the server cannot be reached.
        with contextlib.suppress(Unavailable, DeadlineExceeded):
            await teller.tell(view.progress(await self._get()))

    async def _get(self) -> task_pb2.Task:
        request = pb.GetTaskRequest(namespace_id=self._state.namespace, task_id=self.task_id)
        return (await self._state.ask(m.GET, request)).task

    def _value(self, result: pb.TaskResult) -> R_co:
        converter = self._state.converter
        if result.state != _SUCCEEDED:
            raise failure.from_result(result, converter)
        wanted = self._result
        if isinstance(wanted, Activity):
            wanted = signature_of(wanted).result_type
        # Workers in other languages send an empty output if there is no value.
        is_missing = not result.output and result.output_encoding != BYTES
        payload = Payload(result.output_encoding, b"null" if is_missing else result.output)
        try:
            value: R_co = converter.decode(payload, wanted)
        except PayloadError as error:
            message = f"Task {self.task_id} succeeded, but its result cannot be read. {error}"
            raise PayloadError(message) from error
        return value


class _Teller:
    """Reports each progress once."""

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self._last = TaskProgress()

    async def tell(self, progress: TaskProgress) -> None:
        if progress != self._last:
            self._last = progress
            answer = self._on_progress(progress)
            if inspect.isawaitable(answer):
                waited: Awaitable[object] = answer
                await waited
