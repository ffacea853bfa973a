"""The record of a worker: one incarnation of a ``Worker``, its registration and its state."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from tenure.core.limits import WORKER_SLOTS_DEFAULT


class WorkerStatus(enum.StrEnum):
    """The status of a worker."""

    ONLINE = "online"
    DRAINING = "draining"
    OFFLINE = "offline"


class EndReason(enum.StrEnum):
    """Why an incarnation ended."""

    DEREGISTERED = "deregistered"
    LEASE_EXPIRED = "lease_expired"
    UNREACHABLE = "unreachable"
    SUPERSEDED = "superseded"
    EVICTED = "evicted"


class WorkerMode(enum.StrEnum):
    """How a worker is reached."""

    SESSION = "session"
    POLL = "poll"
    SERVED = "served"
    # Of an endpoint: its process calls back, and nothing registers in this mode.
    CALLBACK = "callback"


DRIVEN: Final = frozenset({WorkerMode.SERVED, WorkerMode.CALLBACK})
"""A server calls those: they never poll, and open no sessions."""


class NewWorker(msgspec.Struct, frozen=True, gc=False):
    """The registration that a worker requests. ``instance_key`` makes the request repeatable.

    It is a secret: anyone who knows it can register the worker with another API key.
    ``key_id`` is the key that it is registered with; a server without keys has none.
    """

    instance_key: str
    queue: str
    types: tuple[str, ...]
    mode: WorkerMode = WorkerMode.SESSION
    slots: int = WORKER_SLOTS_DEFAULT
    name: str = ""
    hostname: str = ""
    pid: int = 0
    software_version: str = ""
    labels: dict[str, str] = {}
    lease_ms: int = 0
    key_id: str = ""
    # Of a served worker: where it listens, and the host that registered it. Its seat has them.
    address: str = ""
    caller: str = ""


class Worker(msgspec.Struct, frozen=True, gc=False):
    """One registered incarnation. ``key_id`` is the API key that it belongs to, if any."""

    id: str
    namespace: str
    queue: str
    types: tuple[str, ...]
    instance_key: str
    registered_at_ms: int
    status: WorkerStatus = WorkerStatus.ONLINE
    mode: WorkerMode = WorkerMode.SESSION
    slots: int = WORKER_SLOTS_DEFAULT
    name: str = ""
    hostname: str = ""
    pid: int = 0
    software_version: str = ""
    labels: dict[str, str] = {}
    session_no: int = 0
    end_reason: EndReason | None = None
    drain_at_ms: int | None = None
    ended_at_ms: int | None = None
    release_pending: bool = False
    version: int = 0
    key_id: str = ""

    def __post_init__(self) -> None:
        """Check the invariants of a worker."""
        is_offline = self.status is WorkerStatus.OFFLINE
        assert is_offline == (self.end_reason is not None)
        assert is_offline == (self.ended_at_ms is not None)
        assert is_offline or not self.release_pending


def create(new: NewWorker, *, worker_id: str, namespace: str, now_ms: int) -> Worker:
    """Return the record of a new incarnation."""
    return Worker(
        id=worker_id,
        namespace=namespace,
        queue=new.queue,
        types=new.types,
        instance_key=new.instance_key,
        registered_at_ms=now_ms,
        mode=new.mode,
        slots=new.slots,
        name=new.name,
        hostname=new.hostname,
        pid=new.pid,
        software_version=new.software_version,
        labels=new.labels,
        key_id=new.key_id,
    )


def differences(worker: Worker, new: NewWorker, *, address: str = "") -> tuple[str, ...]:
    """Return the names of the fields that differ when a worker registers again.

    ``address`` is that of its seat. The lease is not compared: each heartbeat may request another
    one. Nor is the API key, which may be replaced.
    """
    said = (
        ("queue", worker.queue, new.queue),
        ("types", frozenset(worker.types), frozenset(new.types)),
        ("mode", worker.mode, new.mode),
        ("maxConcurrent", worker.slots, new.slots),
        ("name", worker.name, new.name),
        ("hostname", worker.hostname, new.hostname),
        ("pid", worker.pid, new.pid),
        ("version", worker.software_version, new.software_version),
        ("labels", worker.labels, new.labels),
        ("address", address, new.address),
    )
    return tuple(name for name, first, again in said if first != again)
