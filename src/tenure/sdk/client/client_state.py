"""The state that a client shares with its handles and completions, such as the connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from uuid_utils import uuid7

from tenure.errors import TaskAlreadyTerminal, WrongState
from tenure.sdk.activity.definition import Activity
from tenure.sdk.activity.option import SharedOptions
from tenure.sdk.client.enqueue_outbox import EnqueueOutbox
from tenure.sdk.client.explanation import Explanation, explanation
from tenure.sdk.client.method import EXPLAIN, HEALTH
from tenure.sdk.client.stalled_wait import StalledWaits
from tenure.sdk.client.task_bytes import shared_bytes
from tenure.sdk.client.task_stream import TaskStreams, Waiter
from tenure.sdk.duration import Duration, duration_ms
from tenure.sdk.payload import Converter
from tenure.sdk.transport import manual_clock
from tenure.sdk.transport.channel import Channel, Method
from tenure.v1 import task_pb2
from tenure.v1 import task_service_pb2 as pb
from tenure.v1 import workflow_service_pb2 as workflow_pb

Request = TypeVar("Request")
Response = TypeVar("Response")

# How many single calls run at the same time. A thousand would only wait at the server.
_CALLS_MAX: Final = 100
# How long a measured difference between the server's clock and ours is used.
_CLOCK_SECONDS: Final = 60.0


class ClientState:
    """The connection of a client in one namespace, and the requests that are combined over it."""

    def __init__(
        self, channel: Channel, *, namespace: str, converter: Converter, timeout: Duration
    ) -> None:
        """Use ``channel`` for all calls."""
        self.channel = channel
        self.namespace = namespace
        self.converter = converter
        self.timeout_s = seconds(timeout, "timeout")
        self.results = TaskStreams(channel, namespace)
        self._stalled = StalledWaits(self.explain)
        self.outbox = EnqueueOutbox(channel, self.results, namespace, self.timeout_s)
        self._slots = asyncio.Semaphore(_CALLS_MAX)
        self._shared: WeakKeyDictionary[Activity[..., Any], dict[str, bytes]] = WeakKeyDictionary()
        # The server's time when our monotonic clock stood at 0.
        self._epoch_ms = 0
        self._compared_at: float | None = None

    async def ask(
        self,
        method: Method[Request, Response],
        request: Request,
        again: Callable[[], Request] | None = None,
    ) -> Response:
        """Call a method that can safely be repeated, as it is or as ``again`` makes it."""
        async with self._slots:
            return await self.channel.call(method, request, timeout_s=self.timeout_s, again=again)

    async def wait(self, task_id: str, waiter: Waiter | None = None) -> pb.TaskResult:
        """Return the result of a task when it has ended, as ``TaskStreams.wait`` does."""
        number = self._stalled.begin(task_id)
        try:
            return await self.results.wait(task_id, waiter)
        finally:
            self._stalled.end(number)

    async def explain(self, task_id: str) -> Explanation:
        """Ask the server why a task is not running."""
        request = pb.ExplainTaskRequest(namespace_id=self.namespace, task_id=task_id)
        return explanation(task_id, await self.ask(EXPLAIN, request))

    async def change(
        self,
        method: Method[Request, pb.ChangeTaskResponse],
        request: Request,
        wanted: Callable[[str], bool],
    ) -> int:
        """Change a task as ``change_once`` does; return the number of its state."""
        answer = await self.change_once(method, request, wanted)
        if isinstance(answer, str):
            return task_pb2.TaskState.Value(f"TASK_STATE_{answer}")
        return answer.state

    async def change_once(
        self, method: Method[Request, Response], request: Request, wanted: Callable[[str], bool]
    ) -> Response | str:
        """Change a task or a run; return the answer, or the state that it was found in.

        When the answer to a first request was lost, a second one may find that the change was
        made: then ``wanted`` says so of the state that the refusal names.
        """
        is_repeated = False

        def again() -> Request:
            nonlocal is_repeated
            is_repeated = True
            return request

        try:
            return await self.ask(method, request, again)
        except (TaskAlreadyTerminal, WrongState) as error:
            state = str(error.fields.get("state", ""))
            if not is_repeated or not wanted(state):
                raise
            return state

    def shared(self, activity: Activity[..., Any], encoding: str) -> bytes:
        """Return what the tasks of an activity have in common, as bytes; made once."""
        by_encoding = self._shared.get(activity)
        if by_encoding is None:
            by_encoding = self._shared[activity] = {}
        known = by_encoding.get(encoding)
        if known is None:
            known = by_encoding[encoding] = shared_bytes(
                activity.name, activity.options, activity.options.to_wire(encoding)
            )
        return known

    async def run_at_ms(self, options: SharedOptions) -> int:
        """Return when a task is to run by the server's clock; 0 is at once."""
        if not options.delay_ms:
            return options.run_at_ms
        clock = manual_clock.clocks.get(self.channel.target)
        if clock is not None:
            return clock() + options.delay_ms
        asked_at = time.monotonic()
        if self._compared_at is None or asked_at - self._compared_at > _CLOCK_SECONDS:
            await self._compare_clocks()
        return self._epoch_ms + round(asked_at * 1_000) + options.delay_ms

    async def _compare_clocks(self) -> None:
        """Compare the server's clock with ours, which may be wrong and may be changed."""
        before = time.monotonic()
        answer = await self.ask(HEALTH, workflow_pb.HealthCheckRequest())
        after = time.monotonic()
        middle_ms = round((before + after) * 500)
        self._epoch_ms = answer.timestamp.ToMilliseconds() - middle_ms
        self._compared_at = after

    async def close(self) -> None:
        """Close the streams and the connection."""
        await self._stalled.close()
        await self.outbox.close()
        await self.results.close()
        await self.channel.close()


def new_task_id() -> str:
    """Return an id that sorts by its time."""
    return str(uuid7())


def seconds(value: Duration, name: str) -> float:
    """Return a duration in seconds; a ``ValueError`` names the parameter."""
    return duration_ms(value, name) / 1_000
