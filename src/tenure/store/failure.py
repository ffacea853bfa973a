"""How a transaction can fail, told by what the caller should do next."""

from __future__ import annotations

from typing import Final

MISCONFIGURED: Final = "store_misconfigured"
"""The reason of a loss that no waiting mends."""


class StoreError(Exception):
    """A transaction did not happen."""


class Conflict(StoreError):
    """A deadlock, a serialization failure or a busy database: run the same body again."""


class Blocked(Conflict):
    """Somebody has kept a row for too long: run what does not need that row without the rest."""


class Refused(StoreError):
    """The data do not fit the database: the same body would fail again."""


class KeyTaken(Refused):
    """Another transaction has stored the same unique key: a body that loads again will see it."""


class RuleBroken(Refused):
    """A constraint of the schema forbids what was decided: a mistake of ours, not of a caller."""


class Lost(StoreError):
    """The store is away. After COMMIT was sent nobody knows whether it happened."""

    def __init__(self, message: str, *, reason: str = "store_unreachable") -> None:
        """Keep the reason that callers are told."""
        super().__init__(message)
        self.reason = reason


class FenceLost(StoreError):
    """A fenced write found that a row has moved on: what was decided rests on an old copy."""

    def __init__(self, ids: frozenset[str]) -> None:
        """Keep the ids whose copies are stale."""
        super().__init__(f"{len(ids)} rows were changed by somebody else")
        self.ids = ids


class SchemaError(StoreError):
    """The database's schema does not fit this server."""


class StoreInUseError(StoreError):
    """Another server works on the same SQLite file."""


class StoreDamagedError(StoreError):
    """The structure of the SQLite file is broken."""
