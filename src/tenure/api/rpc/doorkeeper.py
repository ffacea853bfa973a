"""Who stands before every gRPC call with new work, and turns it away when the server is late.

A call that is turned away is not even read: its answer was made before it came.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc

from tenure.api.admission import Admission, overloaded
from tenure.api.rpc import error
from tenure.api.rpc.boundary import Context, Handler
from tenure.api.rpc.outcome import Count
from tenure.api.rpc.turnstile import Turnstile
from tenure.core.limits import CROWD_MIN
from tenure.engine.clock import Clock
from tenure.errors import RateLimited

# What brings new work; registrations too, because heartbeats come first.
_NEW_WORK: Final = {
    f"/tenure.v1.{path}": path.rpartition("/")[2]
    for path in (
        "TaskService/EnqueueTasks",
        "TaskService/RetryTask",
        "WorkflowService/RegisterWorker",
    )
}


class Doorkeeper(grpc.aio.ServerInterceptor):
    """The outermost interceptor."""

    def __init__(self, admission: Admission, count: Count, clock: Clock) -> None:
        """Ask ``admission`` about new work, and report to ``count`` what it turns away."""
        self._admission = admission
        self._count = count
        self._refusal = error.status(overloaded())
        self._closed: Handler = grpc.stream_unary_rpc_method_handler(self._turn_away)
        self._wrapped: dict[str, Handler] = {}
        self._turnstile = Turnstile(clock)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Return the handler of a method, or the one that refuses it."""
        path = handler_call_details.method
        method = _NEW_WORK.get(path)
        if method is None:
            return await continuation(handler_call_details)
        self._turnstile.arrived()
        if self._admission.refuses():
            self._count("grpc", method, RateLimited.code, 0.0)
            return self._closed
        known = self._wrapped.get(path)
        if known is None:
            handler = await continuation(handler_call_details)
            assert handler is not None
            known = self._wrapped[path] = self._wrap(handler, method)
        return known

    async def _turn_away(self, requests: AsyncIterator[object], context: Context) -> object:
        """Refuse without reading what was sent."""
        del requests
        return await context.abort_with_status(self._refusal)

    def _wrap(self, handler: Handler, method: str) -> Handler:
        # gRPC's types say that it takes the context of the other kind of server.
        handle: Any = handler.unary_unary
        admission, turnstile = self._admission, self._turnstile
        read = handler.request_deserializer
        assert read is not None

        async def call(data: bytes, context: Context) -> object:
            with admission.work():
                if admission.open_count >= CROWD_MIN and not await turnstile.is_passed():
                    admission.refused_count += 1
                    self._count("grpc", method, RateLimited.code, 0.0)
                    return await context.abort_with_status(self._refusal)
                return await handle(read(data), context)

        return grpc.unary_unary_rpc_method_handler(
            call,
            response_serializer=handler.response_serializer,
        )
