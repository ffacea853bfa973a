"""The wrapper of every gRPC call: its key, typed errors, deadlines, invalid bytes, and counts.

The key comes first: if it is refused, no message is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, Final, NoReturn, Protocol

import grpc
from google.protobuf.message import DecodeError

from tenure.api.guard.access import (
    OPEN,
    PRINCIPAL,
    Access,
    ForeignPage,
    KeyRefused,
    check_action,
    check_namespace,
)
from tenure.api.guard.client_address import rpc_address
from tenure.api.guard.scope import scope
from tenure.api.rpc import error
from tenure.api.rpc.context import Behavior, Context, Handler
from tenure.api.rpc.message_reader import MessageReader, in_time
from tenure.api.rpc.outcome import Count, log_refusal, outcome
from tenure.api.rpc.overload_interceptor import OverloadInterceptor
from tenure.api.rpc.permission import MethodRule, Scope
from tenure.api.rpc.table import NEW_WORK, OPEN_METHODS, REQUESTS, RULES
from tenure.core.access.permission import Action
from tenure.core.access.principal import Principal
from tenure.core.limits import CALL_MS, LONG_POLL_MS
from tenure.errors import InvalidArgument, TenureError, Unimplemented

_HEADER: Final = "authorization"
# Browsers set them; gRPC clients do not.
_PAGE_HEADERS: Final = frozenset({"origin", "sec-fetch-site"})
# A poll that gets nothing answers by itself at its deadline.
_SECONDS: Final = {"PollActivity": (LONG_POLL_MS + CALL_MS) / 1000}


class _ScopedMessage(Protocol):
    """A request that names its namespace, directly or in its hello."""

    namespace_id: str
    hello: _ScopedMessage


class _BadMessage:
    """Replaces a message that could not be read; the call is refused with a typed error."""


def _safe(read: Callable[[bytes], object]) -> Callable[[bytes], Any]:
    def parse(data: bytes) -> object:
        try:
            return read(data)
        except DecodeError:
            return _BadMessage()

    return parse


class Boundary(grpc.aio.ServerInterceptor):
    """Wraps each handler once, when its method is first called."""

    def __init__(self, count: Count, access: Access, overload: OverloadInterceptor) -> None:
        """Report each call to ``count``, and accept the callers that ``access`` accepts."""
        self._count = count
        self._access = access
        self._overload = overload
        self._reader = MessageReader()
        self._wrapped: dict[str, Handler] = {}
        self._unknown: Handler = grpc.stream_stream_rpc_method_handler(self._refuse_unknown)

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
        if handler is None or not (path in RULES or path in OPEN_METHODS):
            # A caller without a key does not learn which methods exist.
            return None if self._access.is_open else self._unknown
        self._wrapped[path] = wrapped = self._wrap(handler, path)
        return wrapped

    def _wrap(self, handler: Handler, path: str) -> Handler:
        rule = None if path in OPEN_METHODS else RULES[path]
        is_ours = path.startswith("/tenure.v1.")
        write = handler.response_serializer
        if rule is None and not is_ours:
            return self._health(handler)
        if handler.unary_unary is not None:
            # As bytes, and as a streaming method: otherwise gRPC reads the message first.
            unary = self._unary(handler, path, rule)
            return grpc.stream_unary_rpc_method_handler(unary, None, write)
        assert handler.stream_stream is not None
        assert handler.request_deserializer is not None
        assert rule is not None
        handle = handler.stream_stream if is_ours else _written(handler.stream_stream)
        stream = self._stream(handle, path.rpartition("/")[2], rule)
        return grpc.stream_stream_rpc_method_handler(
            stream, _safe(handler.request_deserializer), write
        )

    def _unary(self, handler: Handler, path: str, rule: MethodRule | None) -> Behavior:
        handle: Any = handler.unary_unary
        assert handler.request_deserializer is not None
        parse = _safe(handler.request_deserializer)
        method = path.rpartition("/")[2]
        seconds = _SECONDS.get(method, CALL_MS / 1000)
        is_long = method in _SECONDS
        is_new_work = path in NEW_WORK

        async def call(requests: object, context: Context) -> object:
            del requests
            try:
                principal = OPEN if rule is None else await self._admit(context, rule)
                data = await self._reader.read(context, principal)
            except Exception as problem:  # noqa: BLE001 (it is told in the way of all others)
                return await self._guard(partial(_fail, problem), context, method)

            async def answer() -> object:
                request = parse(data)
                if isinstance(request, _BadMessage):
                    raise _unreadable()
                if rule is not None:
                    _check_scope(principal, rule, request)
                async with asyncio.timeout(seconds):
                    if not is_long:
                        return await handle(request, context)
                    async with self._access.guard(principal):
                        return await handle(request, context)

            if is_new_work:
                guarded = partial(self._guard, answer, context, method)
                return await self._overload.serve(method, context, guarded)
            return await self._guard(answer, context, method)

        return call

    def _health(self, handler: Handler) -> Handler:
        """Return a handler of the health service, whose message is read like every other."""
        handle: Any = handler.unary_unary or handler.unary_stream
        assert handler.request_deserializer is not None
        parse = handler.request_deserializer

        async def call(requests: object, context: Context) -> object:
            del requests
            try:
                request = parse(await self._reader.read(context, OPEN))
            except TenureError as refusal:
                return await context.abort_with_status(error.status(refusal))
            except DecodeError:
                return await context.abort_with_status(error.status(_unreadable()))
            return await handle(request, context)

        kind: Any = grpc.stream_stream_rpc_method_handler
        if handler.unary_unary is not None:
            kind = grpc.stream_unary_rpc_method_handler
        made: Handler = kind(call, None, handler.response_serializer)
        return made

    def _stream(self, handle: Behavior, method: str, rule: MethodRule) -> Behavior:
        async def call(requests: AsyncIterator[object], context: Context) -> None:
            async def answer() -> None:
                principal = await self._admit(context, rule)
                async with self._access.guard(principal):
                    await handle(_checked(requests, principal, rule), context)

            await self._guard(answer, context, method)

        return call

    async def _admit(self, context: Context, rule: MethodRule) -> Principal:
        """Return the caller, if its role allows this kind of call."""
        if self._access.is_open:
            _check_page(context)
            if rule.action is Action.ADMIN:
                await self._access.confirm_open()
            return OPEN
        principal = await self._access.authenticate(_authorization(context))
        PRINCIPAL.set(principal)
        check_action(principal, rule.action, is_whole=rule.is_whole)
        return principal

    async def _refuse_unknown(self, requests: AsyncIterator[object], context: Context) -> None:
        del requests

        async def answer() -> None:
            await self._access.authenticate(_authorization(context))
            raise Unimplemented

        await self._guard(answer, context, "unknown")

    async def _guard(
        self, answer: Callable[[], Awaitable[object]], context: Context, method: str
    ) -> object:
        answered = await outcome(answer, method, self._count)
        if isinstance(answered, TenureError):
            self._note(answered, context, method)
            status = error.status(answered, REQUESTS.get(method))
            return await context.abort_with_status(status)
        return answered

    def _note(self, failure: TenureError, context: Context, method: str) -> None:
        address = rpc_address(context.peer())
        left_out = self._access.left_out(failure, address)
        if left_out is not None:
            log_refusal(failure, method, address, left_out)


def _authorization(context: Context) -> str | None:
    """Return the header with the key; two of them are refused."""
    found = [value for name, value in context.invocation_metadata() or () if name == _HEADER]
    if len(found) > 1:
        raise KeyRefused("The header authorization must be sent once.")
    return str(found[0]) if found else None


def _check_page(context: Context) -> None:
    """Refuse web pages: with TLS some browsers send requests that gRPC accepts as calls."""
    for name, _ in context.invocation_metadata() or ():
        if name in _PAGE_HEADERS:
            message = "This server has no API keys, so it refuses gRPC calls from web pages."
            raise ForeignPage(message, reason="foreign_origin")


def _check_scope(principal: Principal, rule: MethodRule, request: _ScopedMessage) -> None:
    """Refuse a namespace that is not the caller's, before anything else of a request is read."""
    if not principal.namespaces or rule.scope is Scope.NONE:
        return
    said: str = (request.hello if rule.scope is Scope.HELLO else request).namespace_id
    if said or rule.scope is not Scope.OPTIONAL:
        check_namespace(principal, scope(said))


async def _checked(
    requests: AsyncIterator[Any], principal: Principal, rule: MethodRule
) -> AsyncIterator[object]:
    """Yield the messages of a stream; the first names its namespace."""
    first = await in_time(anext(requests, None))
    if first is None:
        return
    if isinstance(first, _BadMessage):
        raise _unreadable()
    _check_scope(principal, rule, first)
    yield first
    async for request in requests:
        if isinstance(request, _BadMessage):
            raise _unreadable()
        yield request


def _written(handle: Behavior) -> Behavior:
    """Return a handler that yields its answers as one that writes them."""

    async def call(requests: AsyncIterator[object], context: Context) -> None:
        async for answer in handle(requests, context):
            await context.write(answer)

    return call


async def _fail(problem: Exception) -> NoReturn:
    raise problem


def _unreadable() -> InvalidArgument:
    return InvalidArgument("The message is not valid protobuf for this method", field="request")
