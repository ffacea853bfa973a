"""The wait for the end of a task or a run, and what the one who waits gets."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable
from typing import Final

from tenure.errors import DeadlineExceeded, Unavailable
from tenure.sdk import failure
from tenure.sdk.client import method as m
from tenure.sdk.client import view
from tenure.sdk.client.client_state import ClientState
from tenure.sdk.client.task_stream import Waiter
from tenure.sdk.payload import BYTES, Payload, PayloadError, UserValue
from tenure.sdk.progress import TaskProgress
from tenure.v1 import task_pb2
from tenure.v1 import task_service_pb2 as pb

OnProgress = Callable[[TaskProgress], object]
"""Called with each new progress; an async function is awaited."""

# How often the progress of a task is polled.
_POLL_SECONDS: Final = 0.5
_SUCCEEDED: Final = task_pb2.TASK_STATE_SUCCEEDED


class ResultWait:
    """One wait for a result; ``noun`` is what messages call that which is waited for."""

    def __init__(self, state: ClientState, task_id: str, *, noun: str = "Task") -> None:
        """Wait for a task or a run by its id."""
        self._state = state
        self._task_id = task_id
        self._noun = noun

    async def end(
        self,
        limit_s: float | None,
        on_progress: OnProgress | None = None,
        waiter: Waiter | None = None,
    ) -> pb.TaskResult:
        """Return how it has ended; raise ``TimeoutError`` if it has not in time."""
        clock = asyncio.timeout(limit_s)
        try:
            async with clock:
                return await self._end(on_progress, waiter)
        except TimeoutError:
            if not clock.expired():
                raise
            noun = self._noun
            message = (
                f"{noun} {self._task_id} has not ended within {limit_s:g} s. The {noun.lower()} "
                "goes on; handle.explain() says what it waits for."
            )
            raise TimeoutError(message) from self._state.results.problem

    def value(self, result: pb.TaskResult, wanted: UserValue) -> UserValue:
        """Return the result as the wanted type; raise ``TaskFailed`` if there is none."""
        converter = self._state.converter
        if result.state != _SUCCEEDED:
            raise failure.from_result(result, converter, noun=self._noun)
        # Workers in other languages send an empty output if there is no value.
        is_missing = not result.output and result.output_encoding != BYTES
        payload = Payload(result.output_encoding, b"null" if is_missing else result.output)
        try:
            return converter.decode(payload, wanted)
        except PayloadError as error:
            what = f"{self._noun} {self._task_id}"
            message = f"{what} succeeded, but its result cannot be read. {error}"
            raise PayloadError(message) from error

    async def _end(self, on_progress: OnProgress | None, waiter: Waiter | None) -> pb.TaskResult:
        waiting = self._state.wait(self._task_id, waiter)
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
        request = pb.GetTaskRequest(namespace_id=self._state.namespace, task_id=self._task_id)
        # The wait for the result goes on while the server cannot be reached.
        with contextlib.suppress(Unavailable, DeadlineExceeded):
            await teller.tell(view.progress((await self._state.ask(m.GET, request)).task))


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
