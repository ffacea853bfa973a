"""The reads of endpoints: one by its name, and lists."""

from __future__ import annotations

import msgspec

from tenure.core import check
from tenure.core.endpoint.record import Endpoint
from tenure.engine.read import query
from tenure.engine.read.query import Page, PageRequest
from tenure.errors import NotFound
from tenure.store.table import endpoint as endpoint_table
from tenure.store.table import listing
from tenure.store.table import seat as seat_table
from tenure.store.transaction import Store, Tx


class EndpointView(msgspec.Struct, frozen=True, gc=False):
    """An endpoint; one that was asked for by its name with what it holds and who drives it."""

    endpoint: Endpoint
    now_ms: int
    held_count: int | None = None
    server_id: str | None = None


async def get_endpoint(store: Store, *, namespace: str, name: str) -> EndpointView:
    """Return an endpoint by its name."""
    namespace, name = check.namespace(namespace), check.name(name, "name")

    async def body(tx: Tx) -> EndpointView:
        found = await endpoint_table.find_endpoint(tx, namespace=namespace, name=name)
        if found is None:
            raise NotFound(f"Endpoint {name} was not found.")
        held = await listing.count_worker_held(tx, [(namespace, found.queue, found.id)])
        seats = await seat_table.read_seats(tx, [found.id])
        server_id = seats[0].server_id if seats else None
        return EndpointView(found, await tx.now_ms(), held[found.id].count, server_id)

    return await query.read(store, body)


async def list_endpoints(store: Store, *, namespace: str, page: PageRequest) -> Page[EndpointView]:
    """Return the endpoints of a namespace, by name."""
    namespace = check.namespace(namespace)

    async def find(tx: Tx, after_name: str, amount: int) -> list[EndpointView]:
        found = await endpoint_table.list_endpoints(
            tx, namespace=namespace, after_name=after_name, amount=amount
        )
        now_ms = await tx.now_ms()
        return [EndpointView(each, now_ms) for each in found]

    return await query.list_named(
        store,
        namespace=namespace,
        query="endpoints",
        page=page,
        find=find,
        name_of=lambda view: view.endpoint.name,
    )
