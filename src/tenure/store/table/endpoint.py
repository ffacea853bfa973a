"""Endpoints: records in, records out. The lock of the worker row comes first."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

import msgspec

from tenure.core.endpoint.record import Endpoint, EndpointSecret, EndpointSpec, Pause
from tenure.core.limits import ENDPOINTS_EXPLAINED_MAX
from tenure.core.task.record import Task
from tenure.store.table import codec
from tenure.store.table.fence import check_fence
from tenure.store.table.row_set import RowSet, Table
from tenure.store.transaction import Tx

if TYPE_CHECKING:
    from tenure.store.table.lock_order import RowSets


class _Content(msgspec.Struct, frozen=True, array_like=True):
    """What no statement reads inside."""

    spec: EndpointSpec
    secrets: tuple[EndpointSecret, ...]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Content).decode


def _endpoint_from(row: codec.AnyRow) -> Endpoint:
    content = _decode(row[12])
    return Endpoint(
        id=row[0],
        namespace=row[1],
        name=row[2],
        queue=row[3],
        is_deleting=bool(row[4]),
        pause=None if row[5] is None else Pause(row[5]),
        failure_count=row[6],
        held_until_ms=row[7],
        last_error=row[8],
        last_error_at_ms=row[9],
        created_at_ms=row[10],
        version=row[11],
        spec=content.spec,
        secrets=content.secrets,
    )


def _content(endpoint: Endpoint) -> bytes:
    return _encode(_Content(endpoint.spec, endpoint.secrets))


async def lock_endpoints(tx: Tx, worker_ids: Iterable[str]) -> list[Endpoint]:
    """Lock endpoints by their worker rows."""
    rows = await tx.each("lock_endpoints", [(each,) for each in sorted(worker_ids)])
    return [_endpoint_from(row) for row in rows]


async def find_endpoint(tx: Tx, *, namespace: str, name: str) -> Endpoint | None:
    """Read an endpoint by its name."""
    rows = await tx.one("find_endpoint", namespace, name)
    return _endpoint_from(rows[0]) if rows else None


async def list_endpoints(tx: Tx, *, namespace: str, after_name: str, amount: int) -> list[Endpoint]:
    """Read a part of the endpoints of a namespace, by name."""
    rows = await tx.one("list_endpoints", namespace, after_name, amount)
    return [_endpoint_from(row) for row in rows]


async def find_offering(tx: Tx, task: Task) -> list[Endpoint]:
    """Read the first endpoints of a task's queue that offer its type."""
    found = await list_endpoints(
        tx, namespace=task.namespace, after_name="", amount=ENDPOINTS_EXPLAINED_MAX
    )
    return [each for each in found if each.queue == task.queue and task.type in each.spec.types]


async def list_leaving(tx: Tx, *, amount: int) -> list[tuple[str, str]]:
    """Return (worker, namespace) of endpoints that go when nothing is held by them."""
    rows = await tx.one("list_leaving_endpoints", amount)
    return [cast("tuple[str, str]", tuple(row)) for row in rows]


async def insert_endpoints(tx: Tx, endpoints: Sequence[Endpoint]) -> None:
    """Write new endpoints."""
    rows = [
        (
            each.id,
            each.namespace,
            each.name,
            each.queue,
            each.is_deleting,
            each.pause,
            each.failure_count,
            each.held_until_ms,
            each.last_error,
            each.last_error_at_ms,
            each.created_at_ms,
            _content(each),
        )
        for each in endpoints
    ]
    await tx.each("insert_endpoints", rows)


async def update_endpoints(tx: Tx, endpoints: Sequence[Endpoint]) -> None:
    """Write changed endpoints, each fenced by the version that was read."""
    rows = [
        (
            each.id,
            each.version,
            each.is_deleting,
            each.pause,
            each.failure_count,
            each.held_until_ms,
            each.last_error,
            each.last_error_at_ms,
            _content(each),
        )
        for each in endpoints
    ]
    check_fence(endpoints, await tx.fenced("update_endpoints", rows))


async def delete_endpoints(tx: Tx, endpoints: Sequence[Endpoint]) -> None:
    """Delete endpoints."""
    await tx.each("delete_endpoints", [(each.id,) for each in endpoints])


async def change_workers(tx: Tx, endpoints: Iterable[Endpoint]) -> None:
    """Write into worker rows what endpoints offer now."""
    rows = [
        (each.id, codec.names_to(each.spec.types), each.spec.concurrency)
        for each in sorted(endpoints, key=operator.attrgetter("id"))
    ]
    await tx.each("change_workers", rows)


class EndpointRows(RowSet[str, Endpoint]):
    """Endpoints by the ids of their worker rows; ``names`` are looked up for new ones.

    Of those that are ``reshaped`` the worker row gets other types and slots.
    """

    __slots__ = ("named", "names", "reshaped")

    table = Table(
        operator.attrgetter("id"),
        load=lock_endpoints,
        insert=insert_endpoints,
        update=update_endpoints,
        delete=delete_endpoints,
    )

    def __init__(self) -> None:
        """Start with nothing."""
        super().__init__()
        self.names: set[tuple[str, str]] = set()
        self.named: dict[tuple[str, str], Endpoint] = {}
        self.reshaped: set[str] = set()

    async def load(self, tx: Tx, rows: RowSets) -> None:
        """Lock the wanted ones, and look up names."""
        if self.wanted:
            await super().load(tx, rows)
        for namespace, name in sorted(self.names):
            found = await find_endpoint(tx, namespace=namespace, name=name)
            if found is not None:
                self.named[namespace, name] = found

    async def save(self, tx: Tx, rows: RowSets) -> None:
        """Save changes."""
        if self.removed or self.changed or self.new:
            await super().save(tx, rows)
        if self.reshaped:
            await change_workers(tx, [self[each] for each in self.reshaped])
