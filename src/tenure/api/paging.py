"""The requested page of a list, the same over gRPC and HTTP."""

from __future__ import annotations

from typing import Protocol

from tenure.engine.engine import Engine
from tenure.engine.read.query import PageRequest


class PageParameters(Protocol):
    """A message or a query with a page."""

    @property
    def page_size(self) -> int:
        """The largest number of items; 0 means the server's default."""

    @property
    def page_token(self) -> str:
        """Where the previous page ended; empty for the first page."""


def requested_page(
    engine: Engine, asked: PageParameters, *, wants_total: bool = False
) -> PageRequest:
    """Return the page as the engine reads it; its token is signed with the engine's key."""
    return PageRequest(
        cursor_key=engine.secrets.cursor_key,
        size=asked.page_size,
        token=asked.page_token,
        wants_total=wants_total,
    )
