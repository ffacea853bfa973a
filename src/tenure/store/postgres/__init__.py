"""The production store: PostgreSQL 13 or newer, shared by any number of servers."""

from tenure.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
