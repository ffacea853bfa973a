"""What stands around every gRPC call: typed errors, deadlines, bad bytes, and counts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, TypeAlias

import grpc
import structlog
from google.protobuf.message import DecodeError

from tenure.api.rpc import error
from tenure.core.limits import CALL_MS, LONG_POLL_MS
from tenure.errors import DeadlineExceeded, InvalidArgument, TenureError, Unavailable

log = structlog.get_logger("tenure.api")

Count = Callable[[str, str, str, float], None]
"""(edge, method, code, seconds)"""
# Only their stubs have parameters.
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
RETRY_AFTER_MS: Final = 100
# A poll that gets nothing answers by itself at its deadline.
_SECONDS: Final = {"PollActivity": (LONG_POLL_MS + CALL_MS) / 1000}


class _BadMessage:
    """Stands for a message that could not be read; the call is refused in its own words."""


def _safe(read: Callable[[bytes], object]) -> Callable[[bytes], object]:
    def parse(data: bytes) -> object:
        try:
            return read(data)
        except DecodeError:
            return _BadMessage()

    return parse


class Boundary(grpc.aio.ServerInterceptor):
    """Wraps each handler once, when its method is first called."""

    def __init__(self, count: Count) -> None:
        """Report each call to ``count``."""
        self._count = count
        self._wrapped: dict[str, Handler] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Return the handler of a method with this boundary around it."""
        path = handler_call_details.method
        known = self._wrapped.get(path)
        if known is not None:
            return known
        handler = await continuation(handler_call_details)
        # Unknown methods are answered by gRPC itself; other people's services stay theirs.
        if handler is None or not path.startswith("/tenure.v1."):
            return handler
        self._wrapped[path] = wrapped = self._wrap(handler, path.rpartition("/")[2])
        return wrapped

    def _wrap(
        self,
        handler: Handler,
        method: str,
    ) -> Handler:
        assert handler.request_deserializer is not None
        read = _safe(handler.request_deserializer)
        write = handler.response_serializer
        if handler.unary_unary is not None:
            unary = self._unary(handler.unary_unary, method)
            return grpc.unary_unary_rpc_method_handler(unary, read, write)
        assert handler.stream_stream is not None
        stream = self._stream(handler.stream_stream, method)
        return grpc.stream_stream_rpc_method_handler(stream, read, write)

    def _unary(self, handle: Any, method: str) -> Any:  # noqa: ANN401 (gRPC's own types say no more)
        seconds = _SECONDS.get(method, CALL_MS / 1000)

        async def call(request: object, context: Context) -> object:
            async def answer() -> object:
                if isinstance(request, _BadMessage):
                    raise _unreadable()
                async with asyncio.timeout(seconds):
                    return await handle(request, context)

            return await self._guard(answer, context, method)

        return call

    def _stream(self, handle: Any, method: str) -> Any:  # noqa: ANN401 (gRPC's own types say no more)
        async def call(requests: AsyncIterator[object], context: Context) -> None:
            async def answer() -> None:
                await handle(_checked(requests), context)

            await self._guard(answer, context, method)

        return call

    async def _guard(
        self,
        answer: Callable[[], Awaitable[object]],
        context: Context,
        method: str,
    ) -> object:
        started = time.perf_counter()
        code = "cancelled"
        failure: TenureError
        try:
            answered = await answer()
        except TenureError as refusal:
            failure = refusal
            code = failure.code
        except TimeoutError:
            failure = DeadlineExceeded()
            code = failure.code
        except Exception:
            log.exception("rpc.failed", method=method)
            message = "The server failed to answer. Try again; its log says why."
            failure = Unavailable(message, reason="internal", retry_after_ms=1_000)
            code = failure.code
        else:
            code = "ok"
            return answered
        finally:
            self._count("grpc", method, code, time.perf_counter() - started)
        log.info("rpc.refused", method=method, code=code)
        return await context.abort_with_status(error.status(failure))


async def _checked(requests: AsyncIterator[object]) -> AsyncIterator[object]:
    async for request in requests:
        if isinstance(request, _BadMessage):
            raise _unreadable()
        yield request


def _unreadable() -> InvalidArgument:
    return InvalidArgument("The message is not valid protobuf of this method", field="request")


def shutting_down(advice: str) -> Unavailable:
    """Return what a stream is told that the server closes because it stops."""
    message = f"The server is shutting down. {advice}"
    return Unavailable(message, reason="shutting_down", retry_after_ms=RETRY_AFTER_MS)
