"""Who may make which key: nobody gives away more than the own key is for."""

from __future__ import annotations

from collections.abc import Sequence

from tenure.api.access import check_namespace
from tenure.core import check
from tenure.core.api_key import Role
from tenure.core.principal import Principal
from tenure.engine import command as c
from tenure.errors import PermissionDenied


def creation(
    principal: Principal,
    *,
    name: str,
    role: Role,
    namespaces: Sequence[str],
    expires_in_ms: int,
) -> c.CreateKey:
    """Return the command that makes a key for ``principal``."""
    full = sorted({check.namespace(each, "namespaces") for each in namespaces})
    if principal.is_scoped and not full:
        message = (
            f"API key {principal.key_id} is for {', '.join(principal.namespaces)} alone and cannot "
            "make a key of all namespaces. Name those that the new key is for."
        )
        raise PermissionDenied(message)
    for each in full:
        check_namespace(principal, each)
    return c.CreateKey(
        name=name,
        role=role,
        namespaces=tuple(full),
        expires_in_ms=expires_in_ms,
        actor=principal.key_id,
    )
