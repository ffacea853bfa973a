"""What operators do with endpoints over any edge: a name becomes an id, a URL is tried first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.core.endpoint.record import Endpoint
from tenure.core.endpoint.verdict import Delivery
from tenure.engine.endpoint import command as c
from tenure.engine.endpoint.poster import Poster
from tenure.engine.read.endpoint import EndpointView, get_endpoint
from tenure.errors import Unavailable

if TYPE_CHECKING:
    from tenure.engine.engine import Engine

RETRY_AFTER_MS = 500


async def create(engine: Engine, command: c.CreateEndpoint) -> c.EndpointMade:
    """Create an endpoint; its fields are checked before its name is looked up."""
    made = engine.check(command)
    await _poster(engine).check(command.spec.url)
    return await engine.submit(made)


async def change(
    engine: Engine, namespace: str, name: str, change: c.EndpointChange, *, actor: str
) -> Endpoint:
    """Change an endpoint."""
    endpoint_id = await _id(engine, namespace, name)
    command = engine.check(
        c.SetEndpoint(namespace=namespace, endpoint_id=endpoint_id, change=change, actor=actor)
    )
    if change.url is not None:
        await _poster(engine).check(change.url)
    return await engine.submit(command)


async def pause(
    engine: Engine, namespace: str, name: str, *, is_paused: bool, actor: str
) -> Endpoint:
    """Pause or resume an endpoint."""
    endpoint_id = await _id(engine, namespace, name)
    return await engine.submit(
        c.PauseEndpoint(
            namespace=namespace, endpoint_id=endpoint_id, is_paused=is_paused, actor=actor
        )
    )


async def rotate_secret(engine: Engine, namespace: str, name: str, *, actor: str) -> c.EndpointMade:
    """Make a new secret for an endpoint."""
    endpoint_id = await _id(engine, namespace, name)
    return await engine.submit(
        c.RotateEndpointSecret(namespace=namespace, endpoint_id=endpoint_id, actor=actor)
    )


async def delete(engine: Engine, namespace: str, name: str, *, actor: str) -> Endpoint:
    """Delete an endpoint; it is gone when nothing is held by it."""
    endpoint_id = await _id(engine, namespace, name)
    return await engine.submit(
        c.DeleteEndpoint(namespace=namespace, endpoint_id=endpoint_id, actor=actor)
    )


async def test(engine: Engine, namespace: str, name: str) -> Delivery:
    """Send an endpoint a signed message without a task."""
    view = await find(engine, namespace, name)
    return await _poster(engine).ping(view.endpoint)


async def find(engine: Engine, namespace: str, name: str) -> EndpointView:
    """Return an endpoint by its name."""
    return await get_endpoint(engine.store, namespace=namespace, name=name)


async def _id(engine: Engine, namespace: str, name: str) -> str:
    return (await find(engine, namespace, name)).endpoint.id


def _poster(engine: Engine) -> Poster:
    poster = engine.seats.poster
    if poster is None:
        message = "This server does not push tasks. Ask another one."
        raise Unavailable(message, reason="no_endpoints", retry_after_ms=RETRY_AFTER_MS)
    return poster
