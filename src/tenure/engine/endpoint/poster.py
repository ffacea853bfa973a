"""The seam between the driver of an endpoint and the network."""

from __future__ import annotations

from typing import Protocol

from tenure.core.endpoint.record import Endpoint
from tenure.core.endpoint.verdict import Delivery
from tenure.core.task.record import Task


class Poster(Protocol):
    """Sends signed messages to endpoints; it never raises but for a mistake of ours."""

    async def check(self, url: str) -> None:
        """Refuse a URL that this server would not connect to, with the error for its operator."""
        ...

    async def post(self, endpoint: Endpoint, task: Task) -> Delivery:
        """Send the envelope of an attempt once, and return what became of it."""
        ...

    async def ping(self, endpoint: Endpoint) -> Delivery:
        """Send a message without a task, and return what became of it."""
        ...

    def close(self) -> None:
        """End what it keeps open."""
        ...
