"""The record of an endpoint: where envelopes go, with what, and how the last ones were taken."""

from __future__ import annotations

import enum

import msgspec

from tenure.core.limits import (
    ENDPOINT_CONCURRENCY_DEFAULT,
    ENDPOINT_SECRET_BYTES,
    ENDPOINT_TIMEOUT_MS,
)
from tenure.core.task.callback import CallbackTimes

LABEL = "tenure.endpoint"
"""The label of an endpoint's worker row: the name of the endpoint."""


class Pause(enum.StrEnum):
    """Why nothing is sent to an endpoint until somebody resumes it."""

    OPERATOR = "operator"
    GONE = "gone"


class EndpointSecret(msgspec.Struct, frozen=True, gc=False):
    """One secret that signs envelopes; the present one has no end. It is never printed."""

    value: bytes
    until_ms: int = 0

    def __post_init__(self) -> None:
        """Check the invariants of a secret."""
        assert len(self.value) == ENDPOINT_SECRET_BYTES

    def __repr__(self) -> str:
        """Show nothing of it."""
        return "EndpointSecret(…)"


class EndpointSpec(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What an operator says about an endpoint. The values of headers are secret."""

    url: str
    types: tuple[str, ...]
    headers: dict[str, str] = {}
    concurrency: int = ENDPOINT_CONCURRENCY_DEFAULT
    timeout_ms: int = ENDPOINT_TIMEOUT_MS
    times: CallbackTimes = CallbackTimes()


class Endpoint(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One endpoint; ``id`` is that of its worker row, whose lock protects everything but failures.

    ``failure_count`` are failed deliveries in a row, ``held_until_ms`` is until when nothing is
    sent for that reason. One that ``is_deleting`` goes when nothing is held by it.
    """

    id: str
    namespace: str
    name: str
    queue: str
    spec: EndpointSpec
    secrets: tuple[EndpointSecret, ...]
    created_at_ms: int
    pause: Pause | None = None
    is_deleting: bool = False
    failure_count: int = 0
    held_until_ms: int = 0
    last_error: str = ""
    last_error_at_ms: int = 0
    version: int = 0

    def live_secrets(self, now_ms: int) -> tuple[bytes, ...]:
        """Return the secrets that sign now, the present one first."""
        return tuple(
            each.value for each in self.secrets if not each.until_ms or each.until_ms > now_ms
        )

    def is_held(self, now_ms: int) -> bool:
        """Return whether nothing is sent now because it failed or is busy."""
        return self.held_until_ms > now_ms
