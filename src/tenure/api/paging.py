"""The page that a request asks for, the same over gRPC and HTTP."""

from __future__ import annotations

from typing import Protocol

from tenure.engine.engine import Engine
from tenure.engine.read.query import PageRequest


class PageParameters(Protocol):
    """A message or a query with a page in it."""

    @property
    def page_size(self) -> int:
        """How much is asked for at most; 0 leaves it to the server."""

    @property
    def page_token(self) -> str:
        """Where the page before has ended; empty for the first page."""


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
