"""One operation of the API: the row of the table from which everything else is made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

from tenure.api.guard.client_address import http_address
from tenure.api.guard.fair_share import SharedPlaces
from tenure.api.guard.rate_limit import Allowance
from tenure.api.http.edge.error import JSON, RETRY_AFTER_MS
from tenure.api.http.parameter import NoQuery
from tenure.api.metrics.metric import Metrics
from tenure.api.readiness import Readiness
from tenure.core import limits
from tenure.core.access.permission import Action
from tenure.core.access.principal import Principal
from tenure.core.access.task_token import Claims
from tenure.engine.clock import SystemClock
from tenure.engine.engine import Engine
from tenure.engine.read.shared_read import SharedReads
from tenure.errors import InvalidArgument, RateLimited

Q = TypeVar("Q", bound=NoQuery)
B = TypeVar("B")


class Gate:
    """Accepts a limited number of requests at a time."""

    def __init__(self, most: int, what: str) -> None:
        """Accept ``most`` at once."""
        self._most = most
        self._what = what
        self.count = 0

    def __enter__(self) -> None:
        """Enter, or be refused before anything was done."""
        if self.count >= self._most:
            message = f"The server already has {self.count} {self._what}. Try again soon."
            raise RateLimited(message, retry_after_ms=RETRY_AFTER_MS)
        self.count += 1

    def __exit__(self, *_: object) -> None:
        """Leave."""
        self.count -= 1


class SharedGate:
    """Accepts a limited number of requests at a time, and leaves some places to other clients."""

    def __init__(self, most: int, what: str) -> None:
        """Accept ``most`` at once."""
        self._places = SharedPlaces(most)
        self._what = what

    @property
    def count(self) -> int:
        """Return how many are inside."""
        return self._places.count

    @contextmanager
    def place(self, client: str) -> Iterator[None]:
        """Be inside while the block runs, or be refused before anything was done."""
        if not self._places.has_room(client):
            message = f"The server has {self.count} {self._what}, too many of them yours. "
            raise RateLimited(f"{message}Try again soon.", retry_after_ms=RETRY_AFTER_MS)
        self._places.take(client)
        try:
            yield
        finally:
            self._places.leave(client)


@dataclass(frozen=True)
class RequestContext:
    """What all requests of a server share: the engine, its state, and the limits."""

    engine: Engine
    readiness: Readiness
    metrics: Metrics
    requests: SharedGate = field(
        default_factory=lambda: SharedGate(limits.HTTP_REQUESTS_MAX, "requests")
    )
    probes: SharedGate = field(default_factory=lambda: SharedGate(limits.HTTP_PROBES_MAX, "probes"))
    waits: Gate = field(default_factory=lambda: Gate(limits.HTTP_WAITS_MAX, "waiting requests"))
    streams: Gate = field(default_factory=lambda: Gate(limits.HTTP_STREAMS_MAX, "streams"))
    allowance: Allowance = field(default_factory=lambda: Allowance(SystemClock()))
    fleets: SharedReads = field(default_factory=lambda: SharedReads(limits.FLEET_SHARED_MS))


@dataclass(frozen=True)
class OperationCall(Generic[Q, B]):
    """One request, read and checked by its types."""

    context: RequestContext
    scope: Scope
    namespace: str
    path: dict[str, str]
    query: Q
    body: B
    principal: Principal
    # Of the task token, if the operation needs one.
    claims: Claims | None = None

    @property
    def engine(self) -> Engine:
        """Return the engine that the request is for."""
        return self.context.engine

    def header(self, name: str) -> str:
        """Return a header of the operation, empty if it is not there; two of them are refused."""
        found = Headers(scope=self.scope).getlist(name)
        if len(found) > 1:
            raise InvalidArgument(f"The header {name} must be sent once.", field=name)
        return found[0] if found else ""

    @property
    def caller(self) -> str:
        """Return who shares a limit: all callers with the same key, or else the same address."""
        return self.principal.key_id or http_address(self.scope)


class Answer(msgspec.Struct, frozen=True):
    """What an operation answers: a value that is written as JSON."""

    value: object
    status: int = 200


Handler = Callable[[OperationCall[Any, Any]], Awaitable[Answer | Response]]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path: how it is read, what it does, and its documentation."""

    method: str
    path: str
    name: str
    summary: str
    handle: Handler
    group: str
    # The action that the role of the caller must allow; None allows everybody, also without a key.
    action: Action | None = Action.ADMIN
    # The task token of one attempt is the only credential: no API key opens it.
    has_task_token: bool = False
    # Only for keys for all namespaces.
    is_whole: bool = False
    query: type[NoQuery] = NoQuery
    body: type | None = None
    # Headers of its own, with what they are for.
    headers: dict[str, str] = {}
    needs_body: bool = False
    answer: type | None = None
    status: int = 200
    # The object may exist already: then the status is 200.
    may_find: bool = False
    media_type: str = JSON
    # What a stream sends.
    events: tuple[type, ...] = ()
    errors: tuple[str, ...] = ()
    # A waiting request has its own limit, and ends when the key of its caller ends.
    is_waiting: bool = False
    # It asks for the state of the server, and has its own limit.
    is_probe: bool = False
    # It brings new work, which is refused when the server is overloaded.
    is_new_work: bool = False
    # It counts against the rate of lists.
    is_list: bool = False
    deadline_ms: int = limits.CALL_MS
    example: str = ""
