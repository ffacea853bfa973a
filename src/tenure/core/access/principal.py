"""Principals: who calls, as far as the server has made sure of it."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from tenure.core.access import permission
from tenure.core.access.api_key import ApiKey, Role
from tenure.core.access.permission import Action


class Principal(msgspec.Struct, frozen=True, gc=False):
    """The holder of a key. Without namespaces it may see all of them."""

    key_id: str
    name: str
    role: Role
    namespaces: tuple[str, ...] = ()

    @classmethod
    def open(cls) -> Principal:
        """Return everybody: who calls a server that never had a key may do everything."""
        return cls("", "", Role.ADMIN)

    @classmethod
    def of(cls, key: ApiKey) -> Principal:
        """Return the holder of a key."""
        return cls(key.id, key.name, key.role, key.namespaces)

    @property
    def is_scoped(self) -> bool:
        """Tell whether it is bound to some namespaces."""
        return bool(self.namespaces)

    def may(self, action: Action) -> bool:
        """Tell whether its role allows something."""
        return permission.allows(self.role, action)

    def sees(self, namespace: str) -> bool:
        """Tell whether a namespace is there for it."""
        return not self.namespaces or namespace in self.namespaces

    def covers(self, namespaces: Collection[str]) -> bool:
        """Tell whether a key with these namespaces is there for it; without any it is for all."""
        if not self.namespaces:
            return True
        return bool(namespaces) and all(each in self.namespaces for each in namespaces)
