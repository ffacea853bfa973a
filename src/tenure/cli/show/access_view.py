"""Keys, namespaces and the audit log as plain objects, with the names that they have in JSON."""

from __future__ import annotations

from typing import Any

from tenure.cli.show.text import instant_text
from tenure.cli.show.view import Shown, copied
from tenure.v1 import admin_service_pb2 as pb


class ShownKey(Shown, frozen=True, kw_only=True):
    """A key without its secret; without namespaces it is for all of them."""

    key_id: str
    name: str
    role: str
    state: str
    namespaces: list[str]
    created_at: str
    created_by: str | None = None
    expires_at: str | None = None
    revoked_at: str | None = None
    last_used_at: str | None = None


class ShownNewKey(ShownKey, frozen=True, kw_only=True):
    """A new key with its secret: ``key`` is what is sent."""

    key: str


class ShownTokenKey(Shown, frozen=True):
    """A new key of task tokens, and from when on servers sign with it."""

    number: int
    signs_from: str


class ShownNamespace(Shown, frozen=True):
    """A namespace."""

    name: str
    state: str
    created_at: str


class ShownAudit(Shown, frozen=True, kw_only=True):
    """One administrative action."""

    audit_id: str
    at: str
    action: str
    target: str
    actor: str | None = None
    namespace: str | None = None
    detail: str | None = None


def key(message: pb.ApiKey, now_ms: int) -> ShownKey:
    """Show a key."""
    return ShownKey(**_key_fields(message, now_ms))


def token_key(message: pb.RotateTokenKeyResponse) -> ShownTokenKey:
    """Show a new key of task tokens."""
    return ShownTokenKey(message.number, instant_text(message.signs_from_ms))


def new_key(message: pb.ApiKey, secret: str, now_ms: int) -> ShownNewKey:
    """Show a key that was just made."""
    return ShownNewKey(**_key_fields(message, now_ms), key=secret)


def _key_fields(message: pb.ApiKey, now_ms: int) -> dict[str, Any]:
    return {
        **copied(ShownKey, message),
        "role": pb.Role.Name(message.role).removeprefix("ROLE_").lower(),
        "state": _key_state(message, now_ms),
    }


def _key_state(message: pb.ApiKey, now_ms: int) -> str:
    if message.revoked_at_ms:
        return "REVOKED"
    is_expired = message.expires_at_ms and message.expires_at_ms <= now_ms
    return "EXPIRED" if is_expired else "LIVE"


def namespace(message: pb.Namespace) -> ShownNamespace:
    """Show a namespace."""
    state = "DISABLED" if message.is_disabled else "ENABLED"
    return ShownNamespace(message.name, state, instant_text(message.created_at_ms))


def audit(message: pb.AuditRecord) -> ShownAudit:
    """Show an administrative action."""
    fields = {
        **copied(ShownAudit, message),
        "at": instant_text(message.at_ms),
        "namespace": message.namespace_id or None,
    }
    return ShownAudit(**fields)
