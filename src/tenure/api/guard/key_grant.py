"""The command that creates a key, for both edges; the engine decides who may create which."""

from __future__ import annotations

from collections.abc import Sequence

from tenure.api.guard.access import check_namespace
from tenure.core import check
from tenure.core.access.api_key import Role
from tenure.core.access.principal import Principal
from tenure.engine.access import command as c


def creation(
    principal: Principal, *, name: str, role: Role, namespaces: Sequence[str], expires_in_ms: int
) -> c.CreateKey:
    """Return the command that creates a key for namespaces that ``principal`` may use."""
    full = sorted({check.namespace(each, "namespaces") for each in namespaces})
    for each in full:
        check_namespace(principal, each)
    return c.CreateKey(
        name=name,
        role=role,
        namespaces=tuple(full),
        expires_in_ms=expires_in_ms,
        needs_admin=True,
        actor=principal.key_id,
    )
