"""All workers of a namespace in one narrow read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tenure.core.limits import HELD_LISTED_MAX
from tenure.store.table import codec
from tenure.store.table.codec import AnyRow
from tenure.store.table.listing import Onlooker, deaf_text
from tenure.store.transaction import Tx


class FleetWorker(msgspec.Struct, frozen=True, gc=False):
    """What a picture of many workers shows of one; of the past, health and lease are not known.

    ``held`` counts up to a limit; of the past it is -1.
    """

    id: str
    name: str
    status: str
    health: str
    version: str
    queue: str
    held: int
    slots: int
    lease_left_ms: int
    labels: Mapping[str, str]


async def list_fleet(
    tx: Tx, namespace: str, onlooker: Onlooker, *, amount: int
) -> list[FleetWorker]:
    """Return the active workers, newest first."""
    given = (namespace, deaf_text(onlooker), onlooker.now_ms, HELD_LISTED_MAX, amount)
    return _fleet_from(await tx.one("list_fleet", *given))


async def list_past_fleet(tx: Tx, namespace: str, *, at_ms: int, amount: int) -> list[FleetWorker]:
    """Return the workers that were active at an instant, newest first."""
    return _fleet_from(await tx.one("list_past_fleet", namespace, at_ms, amount))


def _fleet_from(rows: Sequence[AnyRow]) -> list[FleetWorker]:
    return [
        FleetWorker(
            id=row[0],
            name=row[1],
            status=row[2],
            health=row[3],
            version=row[4],
            queue=row[5],
            held=row[6],
            slots=row[7],
            lease_left_ms=row[8],
            labels=codec.labels_from(row[9]) or {},
        )
        for row in rows
    ]
