"""Keys, namespaces and the audit log as messages of gRPC."""

from __future__ import annotations

from typing import Final

from tenure.core.access.api_key import ApiKey, Role
from tenure.core.access.audit import AuditRecord
from tenure.core.queue import Namespace
from tenure.errors import InvalidArgument
from tenure.v1 import admin_service_pb2 as pb

ROLES: Final = {
    Role.ADMIN: pb.ROLE_ADMIN,
    Role.CLIENT: pb.ROLE_CLIENT,
    Role.WORKER: pb.ROLE_WORKER,
    Role.VIEWER: pb.ROLE_VIEWER,
}
_ROLE_OF: Final = {number: role for role, number in ROLES.items()}


def role(number: pb.Role.ValueType) -> Role:
    """Read a role; a key has to have one."""
    found = _ROLE_OF.get(number)
    if found is None:
        message = f"role must be one of {', '.join(Role)}"
        raise InvalidArgument(message, field="role")
    return found


def key(item: ApiKey) -> pb.ApiKey:
    """Show a key without its secret."""
    return pb.ApiKey(
        key_id=item.id,
        name=item.name,
        role=ROLES[item.role],
        namespaces=item.namespaces,
        created_at_ms=item.created_at_ms,
        expires_at_ms=item.expires_at_ms or 0,
        revoked_at_ms=item.revoked_at_ms or 0,
        last_used_at_ms=item.last_used_at_ms or 0,
        created_by=item.created_by,
    )


def namespace(item: Namespace) -> pb.Namespace:
    """Show a namespace."""
    return pb.Namespace(
        name=item.name, is_disabled=item.is_disabled, created_at_ms=item.created_at_ms
    )


def audit_record(item: AuditRecord) -> pb.AuditRecord:
    """Show an audit record; if it has several namespaces, only the detail names them."""
    return pb.AuditRecord(
        audit_id=item.id,
        at_ms=item.at_ms,
        actor=item.actor,
        action=item.action,
        namespace_id=item.namespace,
        target=item.target,
        detail=item.detail,
    )
