"""Checks every gRPC call with new work, and refuses it when the server is overloaded.

A refused call is not read: its answer exists already. A call that was read is parsed when it is its
turn.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import grpc

from tenure.api.guard.admission import Admission, overloaded
from tenure.api.rpc import error
from tenure.api.rpc.context import Context, Handler
from tenure.api.rpc.outcome import Count
from tenure.api.rpc.reading_turns import ReadingTurns
from tenure.api.rpc.table import NEW_WORK
from tenure.core.limits import CROWD_MIN
from tenure.engine.clock import Clock
from tenure.errors import RateLimited


class OverloadInterceptor(grpc.aio.ServerInterceptor):
    """The outermost interceptor."""

    def __init__(self, admission: Admission, count: Count, clock: Clock) -> None:
        """Ask ``admission`` about new work, and report refused calls to ``count``."""
        self._admission = admission
        self._count = count
        self._refusal = error.status(overloaded())
        self._closed: Handler = grpc.stream_unary_rpc_method_handler(self._turn_away)
        self._reading_turns = ReadingTurns(clock)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Return the handler of a method, or the one that refuses it."""
        path = handler_call_details.method
        method = NEW_WORK.get(path)
        if method is None:
            return await continuation(handler_call_details)
        self._reading_turns.arrived()
        if self._admission.refuses():
            self._count("grpc", method, RateLimited.code, 0.0)
            return self._closed
        return await continuation(handler_call_details)

    async def _turn_away(self, requests: AsyncIterator[object], context: Context) -> object:
        """Refuse without reading the message."""
        del requests
        return await context.abort_with_status(self._refusal)

    async def serve(
        self, method: str, context: Context, answer: Callable[[], Awaitable[object]]
    ) -> object:
        """Answer a call with new work that was read, when it is its turn to be parsed."""
        admission = self._admission
        with admission.work():
            if admission.open_count >= CROWD_MIN and not await self._reading_turns.is_passed():
                admission.refused_count += 1
                self._count("grpc", method, RateLimited.code, 0.0)
                return await context.abort_with_status(self._refusal)
            return await answer()
