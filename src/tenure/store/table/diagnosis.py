"""The reads of a diagnosis: bounded reads of the store, or of some of its namespaces."""

from __future__ import annotations

from typing import cast

import msgspec
from msgspec.structs import replace

from tenure.core.diagnosis.server_check import ServerRow
from tenure.core.diagnosis.worker_check import (
    Healths,
    Overdue,
    Sdk,
    SeatTrouble,
    StuckLease,
    Unreleased,
)
from tenure.core.limits import DIAGNOSED_ROWS_MAX
from tenure.core.worker.health import Health
from tenure.core.worker.record import WorkerStatus
from tenure.store import migration
from tenure.store.table import codec
from tenure.store.table.listing import Onlooker, deaf_text
from tenure.store.transaction import Tx


class Extent(msgspec.Struct, frozen=True):
    """What a read may see: rows of some namespaces, empty for all, up to an amount.

    The amount counts visible rows, so that rows of others hide nothing.
    """

    namespaces: tuple[str, ...] = ()
    amount: int = DIAGNOSED_ROWS_MAX

    @property
    def scope(self) -> str:
        """Return the namespaces in the form of the statements."""
        return codec.names_to(self.namespaces)


async def list_seat_troubles(
    tx: Tx, extent: Extent, now_ms: int, since_ms: int
) -> list[SeatTrouble]:
    """Return served workers that no server drives since an instant, or whose calls fail."""
    rows: list[codec.AnyRow] = list(
        await tx.one("list_seat_troubles", extent.scope, since_ms, now_ms, extent.amount)
    )
    return [replace(SeatTrouble(*row), is_driven=bool(row[-1])) for row in rows]


async def read_settings(tx: Tx) -> dict[str, str]:
    """Return the settings that matter for durability and space, by name."""
    rows = await tx.one("list_settings")
    return {cast("str", row[0]): cast("str", row[1]) or "" for row in rows}


async def read_size(tx: Tx) -> int:
    """Return the size of the database in bytes."""
    return cast("int", (await tx.one("read_size"))[0][0])


async def list_applied(tx: Tx) -> list[str]:
    """Return the migrations of the database, in their order."""
    rows = await tx.one("list_migrations")
    return [_title(cast("int", row[0]), cast("str", row[1])) for row in rows]


def known_migrations(dialect: str) -> list[str]:
    """Return the migrations that this server knows, in their order."""
    known = migration.load(f"tenure.store.{dialect}.migrations")
    return [_title(each.number, each.name) for each in known]


def _title(number: int, name: str) -> str:
    return f"{number:04d}_{name}"


async def list_servers(tx: Tx, *, amount: int = DIAGNOSED_ROWS_MAX) -> list[ServerRow]:
    """Return the servers of this store, the last seen first."""
    rows = await tx.one("list_servers", amount)
    return [ServerRow(*cast("tuple[str, int, int, int]", tuple(row))) for row in rows]


async def count_fleet(tx: Tx, extent: Extent, onlooker: Onlooker) -> list[Healths]:
    """Count active workers by namespace, status and health."""
    given = (deaf_text(onlooker), onlooker.now_ms, extent.amount)
    rows: list[codec.AnyRow] = list(await tx.one("count_fleet", extent.scope, *given))
    return [Healths(row[0], WorkerStatus(row[1]), Health(row[2]), row[3]) for row in rows]


async def count_sdks(tx: Tx, extent: Extent) -> list[Sdk]:
    """Count active workers by namespace and SDK."""
    rows = await tx.one("count_sdk_versions", extent.scope, extent.amount)
    return [Sdk(*cast("tuple[str, str, int]", tuple(row))) for row in rows]


async def list_offered(tx: Tx, extent: Extent) -> dict[tuple[str, str], set[str]]:
    """Return the types that online workers offer, by (namespace, queue)."""
    offered: dict[tuple[str, str], set[str]] = {}
    given = (extent.scope, extent.amount)
    rows: list[codec.AnyRow] = list(await tx.one("list_offered_types", *given))
    for namespace, queue, types in rows:
        offered.setdefault((namespace, queue), set()).update(codec.types_from(types))
    return offered


async def list_stuck_leases(tx: Tx, extent: Extent, *, before_ms: int) -> list[StuckLease]:
    """Return leases that ended before an instant."""
    rows = await tx.one("list_stuck_leases", extent.scope, before_ms, extent.amount)
    return [StuckLease(*cast("tuple[str, str, str, int]", tuple(row[:4]))) for row in rows]


async def list_unreleased(tx: Tx, extent: Extent, *, before_ms: int) -> list[Unreleased]:
    """Return workers that ended before an instant and whose tasks were not put back."""
    rows = await tx.one("list_unreleased", extent.scope, before_ms, extent.amount)
    return [Unreleased(*cast("tuple[str, str, str, int]", tuple(row))) for row in rows]


async def list_overdue(tx: Tx, extent: Extent, *, before_ms: int) -> list[Overdue]:
    """Count timers that were due before an instant, by namespace."""
    rows = await tx.one("list_overdue", extent.scope, before_ms, extent.amount)
    return [Overdue(*cast("tuple[str, int, int]", tuple(row))) for row in rows]
