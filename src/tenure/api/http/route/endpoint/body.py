"""The bodies about endpoints, and their conversion."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tenure.api.http.body import Body, given_or
from tenure.core.endpoint import check
from tenure.core.endpoint.record import EndpointSpec
from tenure.engine.endpoint import command as c

Url = Annotated[str, Meta(description="https and public, unless the server allows another")]
Headers = Annotated[dict[str, str], Meta(description="Sent along; the values are not shown again")]
_TIMES = {
    "delivery_timeout_ms": "delivery_timeout_ms",
    "heartbeat_interval_ms": "heartbeat_interval_ms",
    "heartbeat_timeout_ms": "heartbeat_timeout_ms",
    "token_ttl_ms": "token_ms",
}


class EndpointFields(Body, frozen=True, kw_only=True):
    """What may be given about an endpoint."""

    headers: Headers | UnsetType = UNSET
    concurrency: int | UnsetType = UNSET
    timeout_ms: int | UnsetType = UNSET
    delivery_timeout_ms: int | UnsetType = UNSET
    heartbeat_interval_ms: int | UnsetType = UNSET
    heartbeat_timeout_ms: int | UnsetType = UNSET
    token_ttl_ms: int | UnsetType = UNSET

    def given(self, *names: str) -> dict[str, Any]:
        """Return the fields that were given, of those that are named."""
        found = {name: getattr(self, name) for name in names}
        return {name: value for name, value in found.items() if value is not UNSET}

    def times(self) -> dict[str, Any]:
        """Return the times that were given, by their names in the engine."""
        return {_TIMES[name]: value for name, value in self.given(*_TIMES).items()}


class NewEndpointBody(EndpointFields, frozen=True, kw_only=True):
    """An endpoint to create; its queue never changes."""

    name: str
    queue: str
    types: list[str]
    url: Url

    def spec(self) -> EndpointSpec:
        """Return what the endpoint is to be."""
        return EndpointSpec(
            url=self.url,
            types=tuple(dict.fromkeys(self.types)),
            times=check.times(**self.times()),
            **self.given("headers", "concurrency", "timeout_ms"),
        )


class EndpointBody(EndpointFields, frozen=True, kw_only=True):
    """What is to change about an endpoint; fields that are not given do not."""

    types: list[str] | UnsetType = UNSET
    url: Url | UnsetType = UNSET

    def change(self) -> c.EndpointChange:
        """Return the change."""
        types = given_or(self.types, None)
        plain = self.given("url", "headers", "concurrency", "timeout_ms")
        made = c.EndpointChange(**plain, **self.times())
        return (
            made
            if types is None
            else msgspec.structs.replace(made, types=tuple(dict.fromkeys(types)))
        )
