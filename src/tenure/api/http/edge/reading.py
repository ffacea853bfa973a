"""Reading a request: size, type, query, namespace, and whether its client is still connected.

What cannot be valid is refused before it is read.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Coroutine
from typing import Any, Final, NoReturn, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.datastructures import Headers
from starlette.types import Receive

from tenure.api.guard.access import KeyRefused
from tenure.api.guard.scope import scope
from tenure.api.http.edge import strict_json
from tenure.api.http.edge.error import JSON, AmbiguousHead
from tenure.api.http.operation import Operation
from tenure.api.http.parameter import NoQuery, Scoped
from tenure.core.access.task_token import Claims
from tenure.errors import InvalidArgument, InvalidToken, PayloadTooLarge, UnsupportedMediaType

T = TypeVar("T")
Q = TypeVar("Q", bound=NoQuery)
NAMESPACE_HEADER: Final = "tenure-namespace"
# No path needs more; the limit keeps a crafted query cheap.
# Two hundred ids, and the other parameters.
PARAMETERS_MAX: Final = 220


# A proxy in front may use another one of the two than the server behind it.
_ONCE: Final = ("content-type", "content-encoding", "origin")


class ClientGone(Exception):
    """The client closed its connection: there is nobody to answer."""


class Incoming:
    """The incoming body of one request."""

    def __init__(self, headers: Headers, receive: Receive, *, bytes_max: int) -> None:
        """Read from ``receive``, at most ``bytes_max``."""
        self._headers = headers
        self._receive = receive
        self._bytes_max = bytes_max
        length = headers.get("content-length", "0")
        self._length = int(length) if length.isascii() and length.isdigit() else 0
        self.is_pending = bool(self._length) or "transfer-encoding" in headers

    def check_size(self) -> None:
        """Refuse a body that is said to be too large, before anything else about it."""
        if self._length > self._bytes_max:
            self._refuse_size()

    async def read(self, operation: Operation, claims: Claims | None = None) -> object:
        """Return the body as the type that the operation names, or None when it takes none.

        A body about another attempt than that of the task token is refused before its fields.
        """
        if operation.body is None:
            if self.is_pending:
                _refuse("body", "must be empty: this path has no body")
            return None
        self._check_head()
        data = await self._read_all()
        if not data and not operation.needs_body:
            return operation.body()
        self._check_type()
        if claims is not None:
            _check_attempt(data, claims)
        return strict_json.decode(data, operation.body)

    def _check_head(self) -> None:
        encoding = self._headers.get("content-encoding", "identity")
        if encoding.strip().lower() not in {"", "identity"}:
            raise UnsupportedMediaType("The body must not be compressed. Send it unchanged.")
        if self.is_pending:
            self._check_type()
        self.check_size()

    def _check_type(self) -> None:
        kind, _, parameters = self._headers.get("content-type", "").partition(";")
        charset = parameters.strip().lower().replace('"', "")
        if kind.strip().lower() != JSON or charset not in {"", "charset=utf-8"}:
            raise UnsupportedMediaType

    async def _read_all(self) -> bytes:
        chunks: list[bytes] = []
        size = 0
        is_more = True
        while is_more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            chunk: bytes = message.get("body", b"")
            size += len(chunk)
            if size > self._bytes_max:
                self._refuse_size()
            chunks.append(chunk)
            is_more = message.get("more_body", False)
        self.is_pending = False
        return b"".join(chunks)

    def _refuse_size(self) -> NoReturn:
        message = f"The body has more than {self._bytes_max} bytes, which is the limit."
        raise PayloadTooLarge(message, limit=self._bytes_max)


class _WithAttempt(msgspec.Struct, frozen=True):
    """The attempt in a body, if it has one; everything else is checked later."""

    attempt: object = None


def _check_attempt(data: bytes, claims: Claims) -> None:
    attempt = strict_json.peek(data, _WithAttempt).attempt
    if type(attempt) is int and attempt != claims.attempt:
        message = f"The task token is for attempt {claims.attempt}. Use that of this attempt."
        raise InvalidToken(message)


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Do some work; if its client disconnects first, the work is dropped."""
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientGone
    finally:
        working.cancel()
        gone.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        """An empty body, or what a pipelining client sent early."""


def check_head(headers: Headers) -> None:
    """Refuse contradicting headers; h11 refuses two hosts, and different lengths."""
    if "content-length" in headers and "transfer-encoding" in headers:
        message = "The headers Content-Length and Transfer-Encoding exclude each other."
        raise AmbiguousHead(message, field="transfer-encoding")
    for name in _ONCE:
        if len(headers.getlist(name)) > 1:
            raise AmbiguousHead(f"The header {name} must be sent once.", field=name)


def read_query(query_string: bytes, kind: type[Q]) -> Q:
    """Return the parameters of a request; each is known, and only lists are repeated."""
    try:
        pairs = parse_qsl(
            query_string.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=PARAMETERS_MAX,
        )
    except ValueError as error:
        message = f"The query must be UTF-8 with at most {PARAMETERS_MAX} parameters."
        raise InvalidArgument(message, field="query") from error
    lists = _list_names(kind)
    values: dict[str, str | list[str]] = {name: [] for name in lists if name in dict(pairs)}
    for name, value in pairs:
        known = values.get(name)
        if isinstance(known, list):
            known.append(value)
        elif known is not None:
            _refuse(name, "must not be repeated")
        else:
            values[name] = value
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise strict_json.refusal(error, whole="query") from error


@functools.cache
def _list_names(kind: type[NoQuery]) -> frozenset[str]:
    fields = msgspec.inspect.type_info(kind)
    assert isinstance(fields, msgspec.inspect.StructType)
    return frozenset(
        each.encode_name
        for each in fields.fields
        if isinstance(_plain(each.type), msgspec.inspect.ListType)
    )


def _plain(type_: msgspec.inspect.Type) -> msgspec.inspect.Type:
    return type_.type if isinstance(type_, msgspec.inspect.Metadata) else type_


def read_authorization(headers: Headers) -> str | None:
    """Return the header with the key; two of them are refused."""
    found = headers.getlist("authorization")
    if len(found) > 1:
        raise KeyRefused("The header Authorization must be sent once.")
    return found[0] if found else None


def read_namespace(headers: Headers, query: NoQuery) -> str:
    """Return the namespace of a request, from its header or its query."""
    if not isinstance(query, Scoped):
        return ""
    given = [*headers.getlist(NAMESPACE_HEADER), *([query.namespace] if query.namespace else [])]
    namespaces = {scope(each) for each in given} or {scope("")}
    if len(namespaces) > 1:
        _refuse("namespace", "is given twice with different values")
    return namespaces.pop()


def _refuse(field: str, problem: str) -> NoReturn:
    raise InvalidArgument(f"{field} {problem}", field=field)
