"""All workers of a namespace at once, narrow: as they are, or as they were in the last day."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from tenure.core import check
from tenure.core.limits import FLEET_GROUPS_MAX, FLEET_MAX, INSTANT_MS_MAX, OFFLINE_KEPT_MS
from tenure.engine.read.query import check_namespace, scan
from tenure.errors import InvalidArgument
from tenure.store.table import fleet as table
from tenure.store.table.fleet import FleetWorker
from tenure.store.table.listing import Onlooker
from tenure.store.transaction import Tx

if TYPE_CHECKING:
    from tenure.engine.engine import Engine

OTHER = "other"
_LABEL = "label:"


class Fleet(msgspec.Struct, frozen=True):
    """The workers, newest first; of more than 10,000 the newest. ``at_ms`` is when it was so."""

    workers: tuple[FleetWorker, ...]
    at_ms: int
    has_more: bool


class FleetGroup(msgspec.Struct):
    """Workers that are alike in one point, added up."""

    name: str
    worker_count: int = 0
    draining_count: int = 0
    unwell_count: int = 0
    may_stop_count: int = 0
    held_count: int = 0
    slots: int = 0


async def get_fleet(engine: Engine, *, namespace: str, at_ms: int = 0) -> Fleet:
    """Return the active workers, or those that were active at an instant of the last day."""
    namespace = check.namespace(namespace)
    await check_namespace(engine.store, namespace=namespace)

    async def body(tx: Tx) -> Fleet:
        now_ms = await tx.now_ms()
        if (
            at_ms
            and not now_ms - OFFLINE_KEPT_MS
            <= check.integer(at_ms, "at", 0, INSTANT_MS_MAX)
            <= now_ms
        ):
            message = "at must be in the last 24 hours: workers are kept for a day"
            raise InvalidArgument(message, field="at")
        if at_ms:
            found = await table.list_past_fleet(tx, namespace, at_ms=at_ms, amount=FLEET_MAX + 1)
        else:
            onlooker = Onlooker(now_ms, engine.deaf)
            found = await table.list_fleet(tx, namespace, onlooker, amount=FLEET_MAX + 1)
        return Fleet(tuple(found[:FLEET_MAX]), at_ms or now_ms, len(found) > FLEET_MAX)

    return await scan(engine.store, body)


def grouped(workers: Iterable[FleetWorker], by: str) -> Sequence[FleetGroup]:
    """Add up workers by version, by queue or by a label, the largest group first."""
    groups: dict[str, FleetGroup] = {}
    for worker in workers:
        name = _name(worker, by)
        group = groups.get(name)
        if group is None:
            group = groups[name] = FleetGroup(name)
        _add(group, worker)
    found = sorted(groups.values(), key=lambda group: (-group.worker_count, group.name))
    if len(found) <= FLEET_GROUPS_MAX:
        return found
    rest = FleetGroup(OTHER)
    for group in found[FLEET_GROUPS_MAX - 1 :]:
        for field in FleetGroup.__struct_fields__[1:]:
            setattr(rest, field, getattr(rest, field) + getattr(group, field))
    return [*found[: FLEET_GROUPS_MAX - 1], rest]


def check_by(by: str) -> str:
    """Return by what to group, or raise an error."""
    if by in {"", "version", "queue"} or (len(by) > len(_LABEL) and by.startswith(_LABEL)):
        return by
    message = "by must be version, queue, or label:KEY"
    raise InvalidArgument(message, field="by")


def _name(worker: FleetWorker, by: str) -> str:
    if by == "version":
        return worker.version
    if by == "queue":
        return worker.queue
    labels: Mapping[str, str] = worker.labels
    return labels.get(by.removeprefix(_LABEL), "")


def _add(group: FleetGroup, worker: FleetWorker) -> None:
    group.worker_count += 1
    is_draining = worker.status == "draining"
    group.draining_count += is_draining
    group.unwell_count += worker.health not in {"", "healthy"}
    group.may_stop_count += is_draining and worker.held == 0
    group.held_count += max(0, worker.held)
    group.slots += worker.slots
