"""Enqueues over a stream: each is handled like a call of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from tenure.api.guard.access import PRINCIPAL, check_action
from tenure.api.guard.admission import Admission, overloaded
from tenure.api.rpc import error
from tenure.api.rpc.outcome import Count, log_refusal, outcome
from tenure.core.access.permission import Action
from tenure.core.limits import CALL_MS
from tenure.errors import RateLimited, TenureError
from tenure.v1 import task_service_pb2 as pb

Enqueue = Callable[[str, pb.EnqueueTasksRequest], Awaitable[pb.EnqueueTasksResponse]]
# Counted as an enqueue, over a stream or as a call.
_METHOD: Final = "EnqueueTasks"


class StreamEnqueue:
    """Checks the caller and the load, and answers; a stream goes on after a refusal."""

    def __init__(self, enqueue: Enqueue, admission: Admission, count: Count) -> None:
        """Pass accepted requests to ``enqueue``, and report everything to ``count``."""
        self._enqueue = enqueue
        self._admission = admission
        self._count = count

    async def answer(self, namespace: str, message: pb.StreamedEnqueue) -> pb.StreamedAnswer:
        """Return the answer to one enqueue, in the namespace of its stream."""
        if self._admission.refuses():
            self._count("grpc", _METHOD, RateLimited.code, 0.0)
            return refused(message, overloaded())

        async def handle() -> pb.EnqueueTasksResponse:
            check_action(PRINCIPAL.get(), Action.SUBMIT)
            async with asyncio.timeout(CALL_MS / 1000):
                return await self._enqueue(namespace, message.request)

        with self._admission.work():
            answered = await outcome(handle, _METHOD, self._count)
        if isinstance(answered, TenureError):
            log_refusal(answered, _METHOD)
            return refused(message, answered)
        return pb.StreamedAnswer(number=message.number, response=answered)


def refused(message: pb.StreamedEnqueue, refusal: TenureError) -> pb.StreamedAnswer:
    """Return the answer to an enqueue of which nothing was accepted."""
    return pb.StreamedAnswer(number=message.number, refusal=error.detail(refusal))
