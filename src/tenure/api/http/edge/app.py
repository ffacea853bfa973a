"""The edge: what every request needs, whatever it asks for.

It has a key, an id, a log line, a deadline and a place among a limited number. It ends with an
answer or a typed error, and its work is dropped when its client disconnects.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractContextManager, nullcontext, suppress
from http import HTTPStatus
from typing import Any, Final

import msgspec
import structlog
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from tenure.api.guard.access import (
    NOBODY,
    OPEN,
    PRINCIPAL,
    Access,
    check_action,
    check_namespace,
    note_refusal,
)
from tenure.api.guard.admission import overloaded
from tenure.api.guard.client_address import http_address
from tenure.api.guard.fair_share import client_of
from tenure.api.guard.rate_limit import Allowance
from tenure.api.http.edge import early_refusal
from tenure.api.http.edge.error import JSON, error_body, error_response, internal
from tenure.api.http.edge.origin import OriginCheck
from tenure.api.http.edge.reading import (
    ClientGone,
    Incoming,
    check_head,
    read_authorization,
    read_namespace,
    read_query,
    while_connected,
)
from tenure.api.http.operation import Operation, OperationCall, RequestContext
from tenure.api.http.table import OPERATIONS, Table
from tenure.api.metrics.metric import Metrics
from tenure.api.readiness import Readiness
from tenure.api.setting import ServerSettings
from tenure.core import check, limits
from tenure.core.access.permission import Action
from tenure.core.access.principal import Principal
from tenure.core.access.task_token import Claims
from tenure.engine.engine import Engine
from tenure.errors import (
    DeadlineExceeded,
    InvalidArgument,
    InvalidToken,
    NotFound,
    PayloadTooLarge,
    RateLimited,
    TenureError,
)

log = structlog.get_logger("tenure.http")
OK: Final = "ok"
CLIENT_GONE: Final = "client_gone"
NO_ANSWER: Final = 499
HEAD_TOO_LARGE: Final = 431
SLOW_CLIENT: Final = 408
UNKNOWN: Final = "unknown"
_READS: Final = frozenset({"GET", "HEAD"})
# Separators and NUL that a proxy may have decoded or not: no id of Tenure contains them.
_HIDDEN: Final = (b"%2f", b"%5c", b"%00")
_EVENTS: Final = b"text/event-stream"


class Exchange:
    """One request and its answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, bytes_max: int) -> None:
        """Take what the server gives to an ASGI application."""
        self.scope = scope
        self.receive = receive
        self.headers = Headers(scope=scope)
        self.incoming = Incoming(self.headers, receive, bytes_max=bytes_max)
        self.request_id = ""
        self.operation: Operation | None = None
        self.path: dict[str, str] = {}
        self.http_status: int | None = None
        self.code = OK
        # Of the task token of a callback.
        self.claims: Claims | None = None
        # How many like it were not logged before; None when this one is not logged either.
        self.left_out: int | None = 0
        self._send = send
        self._is_streaming = False

    @property
    def name(self) -> str:
        """Return the name of the operation, once it is known."""
        return self.operation.name if self.operation else UNKNOWN

    async def answer(self, response: Response) -> None:
        """Send an answer, with the headers that every answer has."""
        response.headers["x-request-id"] = self.request_id
        response.headers["x-content-type-options"] = "nosniff"
        await response(self.scope, self.receive, self._note)

    async def fail(self, error: TenureError, status: int | None = None) -> None:
        """Send an error, unless an answer has begun: then only a stream can still send it."""
        self.code = error.code
        if self.http_status is None:
            await self.answer(error_response(error, status))
        elif self._is_streaming:
            event = b"event: error\ndata: %b\n\n" % error_body(error)
            # A client that does not read is disconnected without it.
            with suppress(TimeoutError):
                async with asyncio.timeout(limits.SLOW_READER_MS / 1000):
                    await self._note(
                        {"type": "http.response.body", "body": event, "more_body": False}
                    )

    async def _note(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.http_status = int(message["status"])
            self._is_streaming = any(
                name == b"content-type" and value.startswith(_EVENTS)
                for name, value in message["headers"]
            )
        elif not message.get("more_body", False):
            self._is_streaming = False
        await self._send(message)


class _HeadTooLarge(PayloadTooLarge):
    """The request line and the headers are larger than allowed. Send shorter ones."""


class _SlowClient(DeadlineExceeded):
    """The body did not arrive in time. Send it faster, or in smaller parts."""


_STATUSES: Final[dict[type[TenureError], int]] = {
    _HeadTooLarge: HEAD_TOO_LARGE,
    _SlowClient: SLOW_CLIENT,
}


class Edge:
    """The ASGI application."""

    def __init__(self, context: RequestContext, table: Table, settings: ServerSettings) -> None:
        """Answer the operations of the table with the engine of the context."""
        self._context = context
        self._table = table
        self._access = Access(context.engine, context.allowance.refusals)
        self._origin = OriginCheck(settings)
        self._bytes_max = settings.body_bytes_max

    def turn_away(self, data: bytes) -> bytes | None:
        """Return the refusal of a complete received request, if it must be refused."""
        name = early_refusal.new_work(data)
        if name is None:
            return None
        if self._context.allowance.admission.refuses():
            self._context.metrics.request("http", name, RateLimited.code, 0.0)
            return early_refusal.ANSWER
        return None

    def _check_load(self) -> None:
        """Refuse new work when the server is overloaded."""
        admission = self._context.allowance.admission
        # A request that was accepted when it arrived is not checked again.
        if not admission.is_expecting and admission.refuses():
            raise overloaded()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await _refuse_protocol(scope, receive, send)
            return
        clock = self._context.engine.clock
        begun_ms = clock.monotonic_ms()
        exchange = Exchange(scope, receive, send, bytes_max=self._bytes_max)
        exchange.request_id = self._request_id(exchange.headers)
        try:
            await self._serve(exchange)
        finally:
            self._note(exchange, clock.monotonic_ms() - begun_ms)

    def _request_id(self, headers: Headers) -> str:
        """Return the id that the client chose, if it is valid."""
        try:
            return check.name(headers.get("x-request-id"), "X-Request-Id")
        except InvalidArgument:
            return self._context.engine.clock.new_id()

    def _note(self, exchange: Exchange, took_ms: int) -> None:
        """Log what happened, without private data of the client."""
        operation = exchange.operation
        self._context.metrics.request("http", exchange.name, exchange.code, took_ms / 1000)
        if exchange.left_out is None:
            return
        # Probes, scrapes and dashboards read all the time.
        status = exchange.http_status or NO_ANSWER
        is_answered = status < HTTPStatus.BAD_REQUEST or status == NO_ANSWER
        is_quiet = is_answered and exchange.scope["method"] in _READS
        log.log(
            logging.DEBUG if is_quiet else logging.INFO,
            "http.request",
            method=operation.method if operation else exchange.scope["method"][:16],
            route=operation.path if operation else UNKNOWN,
            status=status,
            ms=took_ms,
            request_id=exchange.request_id,
        )

    def _note_refusal(self, exchange: Exchange, error: TenureError) -> None:
        address = http_address(exchange.scope)
        left_out = exchange.left_out = self._access.left_out(error, address)
        if left_out is not None:
            note_refusal(error, exchange.name, address, left_out)

    async def _serve(self, exchange: Exchange) -> None:
        """Answer with the result of the operation, or with its error."""
        try:
            principal, operation = await self._admit(exchange)
            is_long = operation.is_waiting
            async with self._access.guard(principal) if is_long else nullcontext():
                await exchange.answer(await self._response(exchange, principal, operation))
        except ClientGone:
            exchange.code = CLIENT_GONE
        except TenureError as error:
            self._note_refusal(exchange, error)
            await exchange.fail(error, _STATUSES.get(type(error)))
        except Exception:
            log.exception("http.failed", request_id=exchange.request_id)
            await exchange.fail(internal(exchange.request_id))

    async def _admit(self, exchange: Exchange) -> tuple[Principal, Operation]:
        """Return the operation and its caller; without a key nobody learns which paths exist."""
        scope = exchange.scope
        _check_size(scope)
        check_head(exchange.headers)
        principal = OPEN
        if self._table.has_task_token(scope["method"], _raw_path(scope)):
            return await self._admit_callback(exchange)
        if not self._table.is_exempt(scope["method"], _raw_path(scope)):
            if self._access.is_open:
                self._origin.check(scope["method"], exchange.headers)
            else:
                principal = await self._access.authenticate(read_authorization(exchange.headers))
                PRINCIPAL.set(principal)
        _check_path(scope)
        operation, exchange.path = self._table.find(scope["method"], scope["path"])
        exchange.operation = operation
        if operation.has_task_token:
            # Its path is written in another way: no task token says this path.
            raise InvalidToken
        if operation.action is not None:
            check_action(principal, operation.action, is_whole=operation.is_whole)
            if operation.action is Action.ADMIN and principal is OPEN:
                await self._access.confirm_open()
        return principal, operation

    async def _admit_callback(self, exchange: Exchange) -> tuple[Principal, Operation]:
        """Return the operation of a callback, which its task token opens and nothing else."""
        scope = exchange.scope
        operation, exchange.path = self._table.find(scope["method"], scope["path"])
        exchange.operation = operation
        exchange.incoming.check_size()
        claims = await self._access.verify(read_authorization(exchange.headers))
        if claims.task_id != exchange.path["taskId"]:
            raise InvalidToken("The task token is for another task. Use that of this attempt.")
        exchange.claims = claims
        self._context.allowance.callbacks.take(f"{claims.task_id}:{claims.attempt}")
        return NOBODY, operation

    async def _response(
        self, exchange: Exchange, principal: Principal, operation: Operation
    ) -> Response:
        scope = exchange.scope
        query = read_query(scope["query_string"], operation.query)
        namespace = read_namespace(exchange.headers, query)
        self._check_allowance(operation, principal, namespace)
        work = self._context.allowance.admission.work if operation.is_new_work else nullcontext
        deadline = asyncio.timeout(operation.deadline_ms / 1000)
        try:
            with self._gate(operation, principal, scope):
                async with deadline:
                    body = await _read_body(exchange, operation)
                    call = OperationCall(
                        self._context,
                        scope,
                        namespace,
                        exchange.path,
                        query,
                        body,
                        principal,
                        exchange.claims,
                    )
                    # Not before: a slow body is not work yet, and blocks none.
                    with work():
                        return await while_connected(exchange.receive, _run(operation, call))
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise (_SlowClient if exchange.incoming.is_pending else DeadlineExceeded) from error

    def _gate(
        self, operation: Operation, principal: Principal, scope: Scope
    ) -> AbstractContextManager[None]:
        """Return whose places a request takes: those of its key, or else of its address."""
        # What a task token allows is limited by its rate, and never refused for load.
        if operation.is_waiting or operation.has_task_token:
            return nullcontext()
        gate = self._context.probes if operation.is_probe else self._context.requests
        return gate.place(principal.key_id or _client(scope))

    def _check_allowance(self, operation: Operation, principal: Principal, namespace: str) -> None:
        """Refuse what is not the caller's, and what is too much, before anything is read."""
        if namespace:
            check_namespace(principal, namespace)
        if operation.is_new_work:
            self._check_load()
        if operation.is_list:
            # Lists of the whole server are counted per key: no key uses up those of others.
            self._context.allowance.lists.take(namespace or principal.key_id)


async def _read_body(exchange: Exchange, operation: Operation) -> object:
    try:
        async with asyncio.timeout(limits.MESSAGE_MS / 1000):
            return await exchange.incoming.read(operation, exchange.claims)
    except TimeoutError:
        raise _SlowClient from None


def _client(scope: Scope) -> str:
    """Return the key of a client without an API key; a local socket has no address."""
    address = scope.get("client")
    return client_of(address[0]) if address else ""


async def _run(operation: Operation, call: OperationCall[Any, Any]) -> Response:
    answer = await operation.handle(call)
    if isinstance(answer, Response):
        return answer
    return Response(
        msgspec.json.encode(answer.value),
        status_code=answer.status,
        headers={"cache-control": "no-store"},
        media_type=JSON,
    )


def _raw_path(scope: Scope) -> bytes:
    """Return the path as it was sent, before anything in it was decoded."""
    raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw_path


def _check_size(scope: Scope) -> None:
    """Refuse a head that is too large."""
    size = len(_raw_path(scope)) + len(scope["query_string"])
    size += sum(len(name) + len(value) for name, value in scope["headers"])
    if size > limits.HTTP_HEAD_BYTES_MAX:
        raise _HeadTooLarge(limit=limits.HTTP_HEAD_BYTES_MAX)


def _check_path(scope: Scope) -> None:
    """Refuse a path that hides a separator."""
    hidden = _raw_path(scope).lower()
    if any(each in hidden for each in _HIDDEN):
        raise NotFound("This path does not exist. /docs lists all paths.")


async def _refuse_protocol(scope: Scope, receive: Receive, send: Send) -> None:
    """Close what is not an HTTP request; start and stop of the server are acknowledged."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1000})
        return
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


def make_app(
    engine: Engine,
    settings: ServerSettings,
    readiness: Readiness,
    metrics: Metrics | None = None,
    allowance: Allowance | None = None,
) -> Edge:
    """Return the ASGI application of a server."""
    allowance = allowance or Allowance(engine.clock, settings)
    context = RequestContext(engine, readiness, metrics or Metrics(), allowance=allowance)
    return Edge(context, Table(OPERATIONS), settings)
