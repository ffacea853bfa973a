"""The audit log: who changed what, and when. It contains no secrets."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from tenure.core import check
from tenure.core.access import api_key
from tenure.core.limits import AUDIT_DETAIL_BYTES_MAX


class AuditAction(enum.StrEnum):
    """What was done: by administrators, and to runs by operators and clients."""

    KEY_CREATE = "key.create"
    KEY_REVOKE = "key.revoke"
    TOKEN_KEY_ROTATE = "token_key.rotate"  # noqa: S105 (a name)
    NAMESPACE_CREATE = "namespace.create"
    NAMESPACE_DISABLE = "namespace.disable"
    NAMESPACE_ENABLE = "namespace.enable"
    WORKER_DRAIN = "worker.drain"
    WORKER_EVICT = "worker.evict"
    QUEUE_SET = "queue.set"
    ENDPOINT_CREATE = "endpoint.create"
    ENDPOINT_SET = "endpoint.set"
    ENDPOINT_PAUSE = "endpoint.pause"
    ENDPOINT_RESUME = "endpoint.resume"
    ENDPOINT_ROTATE_SECRET = "endpoint.rotate_secret"  # noqa: S105 (a name)
    ENDPOINT_DELETE = "endpoint.delete"
    RUN_CANCEL = "run.cancel"
    RUN_PAUSE = "run.pause"
    RUN_RESUME = "run.resume"
    RUN_RETRY = "run.retry"
    RUN_TERMINATE = "run.terminate"
    SCHEDULE_PUT = "schedule.put"
    SCHEDULE_DELETE = "schedule.delete"
    SCHEDULE_PAUSE = "schedule.pause"
    SCHEDULE_RESUME = "schedule.resume"
    SCHEDULE_TRIGGER = "schedule.trigger"
    SCHEDULE_BACKFILL = "schedule.backfill"


class AuditRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One administrative change. ``actor`` is the id of a key, empty if none was needed.

    ``action`` is a text, because a newer server may have written one that is unknown here. A change
    that concerns all namespaces names none.
    """

    id: str
    at_ms: int
    actor: str
    action: str
    target: str
    namespaces: tuple[str, ...] = ()
    detail: str = ""

    def __post_init__(self) -> None:
        """Check the invariants of a record."""
        assert self.target
        assert len(self.detail.encode()) <= AUDIT_DETAIL_BYTES_MAX

    @property
    def namespace(self) -> str:
        """Return the changed namespace; empty if the change concerns several or all."""
        return self.namespaces[0] if len(self.namespaces) == 1 else ""


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filter for records; an empty field matches everything."""

    namespace: str = ""
    action: str = ""
    actor: str = ""

    def checked(self) -> AuditFilter:
        """Return itself with its full namespace, or raise an error that names the invalid field."""
        if self.action:
            check.name(self.action, "action")
        if self.actor:
            api_key.check_id(self.actor, "actor")
        namespace = check.namespace(self.namespace) if self.namespace else ""
        return msgspec.structs.replace(self, namespace=namespace)


ALL_AUDIT: Final = AuditFilter()
