"""The embedded store: one SQLite file, one writer."""

from tenure.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
