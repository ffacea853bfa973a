"""How a transaction can fail; each failure says what the caller should do next."""

from __future__ import annotations

from typing import Final

MISCONFIGURED: Final = "store_misconfigured"
"""The reason of a loss that does not end by waiting."""


class StoreError(Exception):
    """A transaction did not happen."""


class Conflict(StoreError):
    """A deadlock, a serialization failure or a busy database: run the same body again."""


class RowsBusy(Conflict):
    """Rows that a body came to need late are locked: run it again, with them from the start."""

    def __init__(self, keys: frozenset[tuple[str, str]]) -> None:
        """Keep the (namespace, id) of the rows."""
        super().__init__(f"{len(keys)} rows are locked by another transaction")
        self.keys = keys


class Blocked(Conflict):
    """A row was locked for too long: run the commands that do not need this row separately."""


class Refused(StoreError):
    """The data does not fit the database: the same body would fail again."""


class KeyTaken(Refused):
    """Another transaction has stored the same unique key: a body that loads again will see it."""


class RuleBroken(Refused):
    """A constraint of the schema is violated: a bug of Tenure, not a mistake of a caller."""


class Lost(StoreError):
    """The store is not available. After COMMIT was sent, its result is unknown."""

    def __init__(self, message: str, *, reason: str = "store_unreachable") -> None:
        """Keep the reason for the callers."""
        super().__init__(message)
        self.reason = reason


class FenceLost(StoreError):
    """A fenced write found a changed row: the decision was based on an old copy."""

    def __init__(self, ids: frozenset[str]) -> None:
        """Keep the ids whose copies are stale."""
        super().__init__(f"{len(ids)} rows were changed by another transaction")
        self.ids = ids


class SchemaError(StoreError):
    """The schema of the database does not match this server."""


class StoreInUseError(StoreError):
    """Another server uses the same SQLite file."""


class StoreDamagedError(StoreError):
    """The structure of the SQLite file is broken."""
