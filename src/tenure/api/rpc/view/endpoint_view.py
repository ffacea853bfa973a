"""Converts endpoints between records and messages of the wire."""

from __future__ import annotations

from typing import Any, Final

from tenure.core.endpoint import check
from tenure.core.endpoint.record import EndpointSpec
from tenure.engine.endpoint import command as c
from tenure.engine.read.endpoint import EndpointView
from tenure.errors import InvalidArgument
from tenure.v1 import admin_service_pb2 as pb

_PLAIN: Final = ("url", "concurrency", "timeout_ms")
_TIMES: Final = {
    "delivery_timeout_ms": "delivery_timeout_ms",
    "heartbeat_interval_ms": "heartbeat_interval_ms",
    "heartbeat_timeout_ms": "heartbeat_timeout_ms",
    "token_ttl_ms": "token_ms",
}


def spec(options: pb.EndpointOptions) -> EndpointSpec:
    """Return what a new endpoint is to be."""
    if not options.HasField("url"):
        raise InvalidArgument("url must be given", field="url")
    fields = {**_plain(options), "types": tuple(dict.fromkeys(options.types))}
    return EndpointSpec(times=check.times(**_times(options)), **fields)


def change(options: pb.EndpointOptions) -> c.EndpointChange:
    """Return what is to change."""
    types = tuple(dict.fromkeys(options.types)) or None
    return c.EndpointChange(types=types, **_plain(options), **_times(options))


def _plain(options: pb.EndpointOptions) -> dict[str, Any]:
    found = {name: getattr(options, name) for name in _PLAIN if options.HasField(name)}
    return {**found, "headers": dict(options.headers)} if options.headers else found


def _times(options: pb.EndpointOptions) -> dict[str, Any]:
    return {
        name: getattr(options, wire)
        for wire, name in _TIMES.items()
        if options.HasField(wire)  # type: ignore[arg-type]  # names of fields
    }


def shown(view: EndpointView) -> pb.Endpoint:
    """Show an endpoint."""
    endpoint = view.endpoint
    spec, times = endpoint.spec, endpoint.spec.times
    return pb.Endpoint(
        name=endpoint.name,
        worker_id=endpoint.id,
        task_queue=endpoint.queue,
        url=spec.url,
        types=spec.types,
        header_names=sorted(spec.headers),
        concurrency=spec.concurrency,
        timeout_ms=spec.timeout_ms,
        delivery_timeout_ms=times.delivery_timeout_ms,
        heartbeat_interval_ms=times.heartbeat_interval_ms,
        heartbeat_timeout_ms=times.heartbeat_timeout_ms,
        token_ttl_ms=times.token_ms,
        created_at_ms=endpoint.created_at_ms,
        paused=endpoint.pause or "",
        is_deleting=endpoint.is_deleting,
        failure_count=endpoint.failure_count,
        held_until_ms=endpoint.held_until_ms if endpoint.is_held(view.now_ms) else 0,
        last_error=endpoint.last_error,
        last_error_at_ms=endpoint.last_error_at_ms,
        held_count=view.held_count,
        server_id=view.server_id or "",
    )
