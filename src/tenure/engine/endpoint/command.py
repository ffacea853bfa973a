"""The commands for endpoints, and their answers."""

from __future__ import annotations

import msgspec

from tenure.core.endpoint.record import Endpoint, EndpointSpec
from tenure.core.endpoint.verdict import Delivery
from tenure.core.seat.record import Seat
from tenure.core.worker.record import Worker
from tenure.engine.claim.sink import Sink
from tenure.engine.command import Command, TaskRef


class EndpointMade(msgspec.Struct, frozen=True, gc=False):
    """An endpoint with a new secret, and the only chance to read it."""

    endpoint: Endpoint
    secret: bytes


class CreateEndpoint(Command[EndpointMade], frozen=True, kw_only=True):
    """Create an endpoint, with the worker row that gets its tasks."""

    namespace: str
    name: str
    queue: str
    spec: EndpointSpec
    actor: str = ""


class EndpointChange(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What an operator changes; ``None`` leaves a field as it is."""

    url: str | None = None
    types: tuple[str, ...] | None = None
    headers: dict[str, str] | None = None
    concurrency: int | None = None
    timeout_ms: int | None = None
    delivery_timeout_ms: int | None = None
    heartbeat_interval_ms: int | None = None
    heartbeat_timeout_ms: int | None = None
    token_ms: int | None = None


class SetEndpoint(Command[Endpoint], frozen=True, kw_only=True):
    """Change an endpoint: what is handed out from now on has the new values."""

    namespace: str
    endpoint_id: str
    change: EndpointChange
    actor: str = ""


class PauseEndpoint(Command[Endpoint], frozen=True, kw_only=True):
    """Hand out nothing more to an endpoint, or do so again; live attempts go on."""

    namespace: str
    endpoint_id: str
    is_paused: bool
    actor: str = ""


class RotateEndpointSecret(Command[EndpointMade], frozen=True, kw_only=True):
    """Make a new secret; for a day the old one signs too."""

    namespace: str
    endpoint_id: str
    actor: str = ""


class DeleteEndpoint(Command[Endpoint], frozen=True, kw_only=True):
    """Let an endpoint finish what it holds, and then be gone."""

    namespace: str
    endpoint_id: str
    actor: str = ""


class EndEndpoint(Command[bool], frozen=True, kw_only=True):
    """Delete an endpoint that is to be deleted, if nothing is held by it; the answer says so."""

    namespace: str
    endpoint_id: str


class EndpointTaken(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A seat that this server has now, the endpoint, and what it holds according to the rows."""

    seat: Seat
    worker: Worker
    endpoint: Endpoint
    held: frozenset[TaskRef]
    now_ms: int
    cancel: tuple[TaskRef, ...] = ()


class TakeEndpoint(Command[EndpointTaken], frozen=True, gc=True, kw_only=True):
    """The server takes the seat of an endpoint, unless another one drives it.

    Attempts that no endpoint has accepted yet were those of the former owner, and end as
    undelivered, but for those that this server itself is ``posting``.
    """

    namespace: str
    worker_id: str
    sink: Sink
    posting: frozenset[TaskRef] = frozenset()
    window: int = 0


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """The endpoint after a delivery, if it had to be changed, and the time."""

    endpoint: Endpoint | None
    now_ms: int


class ReportDelivery(Command[Delivered], frozen=True, kw_only=True):
    """What became of the envelope of an attempt; without an endpoint that ``counts`` only that."""

    namespace: str
    worker_id: str
    item: TaskRef
    delivery: Delivery
    counts: bool
