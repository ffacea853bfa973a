"""The permission that a gRPC method needs."""

from __future__ import annotations

import enum
from typing import NamedTuple

from tenure.core.access.permission import Action


class Scope(enum.Enum):
    """Where a request names its namespace."""

    NAMESPACE_ID = "namespace_id"
    # Empty means all that the caller may see.
    OPTIONAL = "optional"
    HELLO = "hello"
    # It belongs to no namespace, or its handler checks the names in it.
    NONE = "none"


class MethodRule(NamedTuple):
    """The permission that a caller must have."""

    action: Action
    scope: Scope = Scope.NAMESPACE_ID
    # Only for keys for all namespaces.
    is_whole: bool = False
