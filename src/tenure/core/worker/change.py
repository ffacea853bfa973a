"""The changes of a worker's status and connection, as they are kept for people."""

from __future__ import annotations

import enum

import msgspec


class ChangeKind(enum.StrEnum):
    """What changed."""

    REGISTERED = "registered"
    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    DRAINING = "draining"
    OFFLINE = "offline"


class WorkerChange(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One change: when it was committed, and why. One by an administrator is audited."""

    id: str
    namespace: str
    worker_id: str
    at_ms: int
    kind: ChangeKind
    cause: str = ""
    audit_id: str = ""
