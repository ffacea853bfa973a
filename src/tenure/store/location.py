"""Where the store is: the one place that turns a URL into a store."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote, urlsplit

from tenure.errors import InvalidArgument
from tenure.store.transaction import Store

_FORMS = "sqlite:///tenure.db, sqlite:////absolute/tenure.db or postgresql://user@host/database"


def make_store(
    url: str, *, clock: Callable[[], int], schema: str = "", pooled: bool = False
) -> Store:
    """Return the store that a URL names; ``pooled`` is behind a pooler in transaction mode.

    An empty ``schema`` means the one that has the tables; in a new PostgreSQL database ``tenure``.

    >>> make_store("sqlite:///tenure.db", clock=lambda: 0).dialect
    'sqlite'
    """
    scheme = url.partition("://")[0]
    if scheme == "sqlite":
        path = sqlite_path(url)
        if schema:
            raise InvalidArgument(
                "A SQLite file has no schemas. Remove --schema and TENURE_SCHEMA.", field="schema"
            )
        from tenure.store.sqlite import SqliteStore  # noqa: PLC0415 (loads only what is used)

        return SqliteStore(path, clock=clock)
    if scheme in {"postgresql", "postgres"}:
        try:
            from tenure.store.postgres import PostgresStore  # noqa: PLC0415 (an extra)
        except ImportError as missing:
            message = "PostgreSQL needs an extra. Run: pip install 'tenure[postgres]'."
            raise InvalidArgument(message) from missing
        return PostgresStore(url, schema=schema, pooled=pooled)
    raise InvalidArgument(f"The store must be a URL like {_FORMS}.", field="store")


def sqlite_path(url: str) -> str:
    """Return the file that a URL names; an absolute path begins with a fourth slash."""
    rest = url.removeprefix("sqlite://")
    path = unquote(rest.removeprefix("/"))
    if not rest.startswith("/") or not path or "?" in path or "\0" in path:
        raise InvalidArgument(f"The store must be a URL like {_FORMS}.", field="store")
    return path


def shown(url: str) -> str:
    """Return a URL for printing: without its password and its parameters."""
    try:
        parts = urlsplit(url)
        if parts.scheme not in {"postgresql", "postgres"}:
            return url
        hosts = parts.netloc.rpartition("@")[2]
        user = parts.username
    except ValueError:
        return "a URL that cannot be read"
    return f"{parts.scheme}://{user + '@' if user else ''}{hosts}{parts.path}"
