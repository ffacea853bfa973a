"""What a gRPC method can need of its caller."""

from __future__ import annotations

import enum
from typing import NamedTuple

from tenure.core.access.permission import Action


class Scope(enum.Enum):
    """Where a request says which namespace it is about."""

    NAMESPACE_ID = "namespace_id"
    # Empty means all that the caller may see.
    OPTIONAL = "optional"
    HELLO = "hello"
    # It belongs to no namespace, or its handler looks at the names in it.
    NONE = "none"


class MethodRule(NamedTuple):
    """What a caller must be allowed to do."""

    action: Action
    scope: Scope = Scope.NAMESPACE_ID
    # Only for keys of all namespaces.
    is_whole: bool = False
