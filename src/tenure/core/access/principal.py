"""Principals: the caller, as authenticated by the server."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from tenure.core.access import permission
from tenure.core.access.api_key import ApiKey, Role
from tenure.core.access.permission import Action


class Principal(msgspec.Struct, frozen=True, gc=False):
    """The owner of a key. Without namespaces it has access to all of them."""

    key_id: str
    name: str
    role: Role
    namespaces: tuple[str, ...] = ()

    @classmethod
    def open(cls) -> Principal:
        """Return the principal of a server that never had a key: it may do everything."""
        return cls("", "", Role.ADMIN)

    @classmethod
    def of(cls, key: ApiKey) -> Principal:
        """Return the principal of a key."""
        return cls(key.id, key.name, key.role, key.namespaces)

    @property
    def is_scoped(self) -> bool:
        """Return whether it is limited to some namespaces."""
        return bool(self.namespaces)

    def may(self, action: Action) -> bool:
        """Return whether its role allows something."""
        return permission.allows(self.role, action)

    def sees(self, namespace: str) -> bool:
        """Return whether it has access to a namespace."""
        return not self.namespaces or namespace in self.namespaces

    def covers(self, namespaces: Collection[str]) -> bool:
        """Return whether it has access to a key with these namespaces; none means all of them."""
        if not self.namespaces:
            return True
        return bool(namespaces) and all(each in self.namespaces for each in namespaces)
