"""Endpoints as plain objects, with the names that they have in JSON."""

from __future__ import annotations

from tenure.cli.show.view import Shown, copied
from tenure.v1 import admin_service_pb2 as pb


class ShownEndpoint(Shown, frozen=True, kw_only=True):
    """An endpoint; of its headers only the names are shown."""

    name: str
    worker_id: str
    queue: str
    url: str
    types: list[str]
    headers: list[str]
    concurrency: int
    timeout_ms: int
    delivery_timeout_ms: int
    heartbeat_interval_ms: int
    heartbeat_timeout_ms: int
    token_ttl_ms: int
    created_at: str
    failure_count: int
    is_deleting: bool
    paused: str | None = None
    held_until: str | None = None
    last_error: str | None = None
    last_error_at: str | None = None
    held_count: int | None = None
    server_id: str | None = None

    @property
    def state(self) -> str:
        """Whether tasks are pushed to it, as one word."""
        if self.is_deleting:
            return "DELETING"
        if self.paused:
            return "GONE" if self.paused == "GONE" else "PAUSED"
        return "HELD" if self.held_until else "ACTIVE"


class ShownNewEndpoint(Shown, frozen=True):
    """An endpoint with a new secret, which is never shown again."""

    endpoint: ShownEndpoint
    secret: str


class ShownDelivery(Shown, frozen=True):
    """What became of a message without a task."""

    verdict: str
    took_ms: int
    error: str | None = None


def endpoint(message: pb.Endpoint) -> ShownEndpoint:
    """Show an endpoint."""
    fields = copied(ShownEndpoint, message)
    fields["paused"] = message.paused.upper() or None
    return ShownEndpoint(queue=message.task_queue, headers=list(message.header_names), **fields)


def delivery(message: pb.TestEndpointResponse) -> ShownDelivery:
    """Show what became of a message."""
    return ShownDelivery(message.verdict, message.took_ms, message.error or None)
