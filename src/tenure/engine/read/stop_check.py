"""Whether workers may be stopped now, with what shows it; and waiting until they may."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from tenure.core import check
from tenure.core.filter import WorkerFilter
from tenure.core.limits import (
    EXCLUSIVE_MARGIN_MS,
    HELD_LISTED_MAX,
    HELD_SET_MAX,
    STOP_BLOCKERS_MAX,
    STOP_CHECKED_MAX,
    STOP_LOOK_BUDGET,
    STOP_LOOK_MS,
    STOP_READS_MAX,
)
from tenure.core.worker import stop_check as rules
from tenure.core.worker.record import Worker, WorkerStatus
from tenure.core.worker.stop_check import HeldAttempt, HeldSum, StopReason
from tenure.engine.read.query import check_namespace, read, scan
from tenure.errors import InvalidArgument, NotFound
from tenure.store.table import lease as lease_table
from tenure.store.table import listing
from tenure.store.table import worker as worker_table
from tenure.store.table.listing import NEWEST, Onlooker, Slice
from tenure.store.table.worker_change import read_drains
from tenure.store.transaction import Tx

if TYPE_CHECKING:
    from tenure.engine.engine import Engine


class StopBlocker(msgspec.Struct, frozen=True):
    """A worker that must not be stopped yet."""

    worker_id: str
    reason: StopReason
    held_count: int


class StopCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Whether one or several workers may be stopped.

    After ``committed_at_ms`` nothing was handed out to them: the commit of the drain or of the end,
    of several workers the last one; ``audit_id`` is its record, if an operator requested it.
    ``last_result_at_ms`` is when a worker last told this server of an ended attempt. At
    ``clears_at_ms`` the attempts that are left go back, if nothing else happens.
    """

    reason: StopReason
    checked_at_ms: int
    held: HeldSum = HeldSum()
    committed_at_ms: int | None = None
    audit_id: str = ""
    last_result_at_ms: int | None = None
    clears_at_ms: int | None = None
    blockers: tuple[HeldAttempt, ...] = ()
    worker_count: int = 1
    safe_count: int = 0
    workers: tuple[StopBlocker, ...] = ()

    @property
    def is_safe(self) -> bool:
        """Return whether nothing is interrupted by a stop."""
        return rules.is_safe(self.reason)


Look = Callable[[], Awaitable[StopCheck]]


async def check_worker(engine: Engine, *, namespace: str, worker_id: str) -> StopCheck:
    """Check one worker."""
    namespace = check.namespace(namespace)
    check.task_id(worker_id, "workerId")

    async def body(tx: Tx) -> StopCheck:
        # The status first: what is handed out before a drain is committed before it, too.
        found = await worker_table.read_workers(tx, [worker_id])
        if not found or found[0].namespace != namespace:
            raise NotFound(f"Worker {worker_id} was not found.")
        return await _checked(tx, found[0])

    found = await read(engine.store, body)
    return msgspec.structs.replace(
        found, last_result_at_ms=engine.beat_log.last_result_at_ms(worker_id)
    )


async def _checked(tx: Tx, worker: Worker) -> StopCheck:
    place = (worker.namespace, worker.queue, worker.id)
    sums = await listing.sum_worker_held(tx, [place], amount=HELD_SET_MAX + 1)
    held = sums.get(worker.id, HeldSum())
    blockers: Sequence[HeldAttempt] = ()
    clears_at_ms = None
    if held.count:
        blockers = await listing.list_worker_held(tx, place, amount=STOP_BLOCKERS_MAX)
        clears_at_ms = worker.drain_at_ms
        if worker.status is WorkerStatus.OFFLINE:
            ended = await lease_table.read_ended_leases(tx, [worker.id])
            lease_until_ms, _ = ended.get(worker.id, (0, 0))
            clears_at_ms = lease_until_ms + EXCLUSIVE_MARGIN_MS if lease_until_ms else None
    committed_at_ms, audit_id = worker.ended_at_ms, ""
    if worker.status is not WorkerStatus.ONLINE:
        drains = await read_drains(tx, [(worker.namespace, worker.id)])
        if worker.id in drains:
            committed_at_ms, audit_id = drains[worker.id].at_ms, drains[worker.id].audit_id
    found = rules.reason(worker, held)
    return StopCheck(
        reason=found,
        checked_at_ms=await tx.now_ms(),
        held=held,
        committed_at_ms=committed_at_ms,
        audit_id=audit_id,
        clears_at_ms=clears_at_ms,
        blockers=tuple(blockers),
        safe_count=int(rules.is_safe(found)),
    )


async def check_matching(
    engine: Engine, *, namespace: str, labels: Mapping[str, str], version: str
) -> StopCheck:
    """Check all workers that have the labels and the version, also those that have ended."""
    if not labels and not version:
        message = "Give labels or a version: a check of all workers is rarely what is meant."
        raise InvalidArgument(message, field="labels")
    namespace = check.namespace(namespace)
    where = WorkerFilter(version=version, labels=dict(labels)).checked()
    await check_namespace(engine.store, namespace=namespace)
    parts = []
    position: str | None = NEWEST
    # A worker that may be stopped stays so: it gets nothing more. So the parts need not be of one
    # instant.
    for _ in range(STOP_READS_MAX):
        assert position is not None
        part, position = await _check_part(engine, namespace, where, position)
        parts.append(part)
        if position is None:
            break
    return _joined(parts, is_whole=position is None)


async def _check_part(
    engine: Engine, namespace: str, where: WorkerFilter, position: str
) -> tuple[StopCheck, str | None]:
    async def body(tx: Tx) -> tuple[StopCheck, str | None]:
        now_ms = await tx.now_ms()
        part = Slice(position, STOP_CHECKED_MAX, STOP_CHECKED_MAX)
        found, end_id = await listing.list_workers(tx, namespace, where, part, Onlooker(now_ms))
        workers = [worker for worker, _ in found]
        places = [(namespace, worker.queue, worker.id) for worker in workers]
        sums = await listing.sum_worker_held(tx, places, amount=HELD_LISTED_MAX)
        ended = [each for each in workers if each.status is not WorkerStatus.ONLINE]
        drains = await read_drains(tx, [(namespace, each.id) for each in ended])
        commits = [(each.at_ms, each.audit_id) for each in drains.values()]
        commits += [(each.ended_at_ms, "") for each in ended if each.ended_at_ms is not None]
        return _of_part(workers, sums, commits, now_ms), end_id

    return await scan(engine.store, body)


def _of_part(
    workers: Sequence[Worker],
    sums: Mapping[str, HeldSum],
    commits: Sequence[tuple[int, str]],
    now_ms: int,
) -> StopCheck:
    """Return the check of some workers, with what they hold, and when nothing more was given."""
    reasons = {each.id: rules.reason(each, sums.get(each.id, HeldSum())) for each in workers}
    unsafe = [each for each in workers if not rules.is_safe(reasons[each.id])]
    committed_at_ms, audit_id = max(commits, default=(None, ""))
    return StopCheck(
        reason=_worst(reasons.values()),
        checked_at_ms=now_ms,
        held=_sum(sums.values()),
        committed_at_ms=committed_at_ms,
        audit_id=audit_id,
        clears_at_ms=_last([each.drain_at_ms for each in unsafe]),
        worker_count=len(workers),
        safe_count=len(workers) - len(unsafe),
        workers=tuple(
            StopBlocker(each.id, reasons[each.id], sums.get(each.id, HeldSum()).count)
            for each in unsafe[:STOP_BLOCKERS_MAX]
        ),
    )


def _last(instants: Sequence[int | None]) -> int | None:
    """Return the last of some instants, if all are known."""
    known = [each for each in instants if each is not None]
    return max(known) if known and len(known) == len(instants) else None


# The first of these that is found among several workers is shown for all.
_ORDER: Final = (
    StopReason.NOT_DRAINED,
    StopReason.HOLDS_ATTEMPTS,
    StopReason.DRAINED,
    StopReason.OFFLINE,
)


def _worst(reasons: Iterable[StopReason]) -> StopReason:
    found = set(reasons)
    return next((each for each in _ORDER if each in found), StopReason.NO_WORKER)


def _sum(sums: Iterable[HeldSum]) -> HeldSum:
    found = list(sums)
    oldest = [each.oldest_at_ms for each in found if each.oldest_at_ms is not None]
    return HeldSum(
        sum(each.count for each in found),
        sum(each.unconfirmed_count for each in found),
        min(oldest, default=None),
        is_exact=all(each.is_exact for each in found),
    )


def _joined(parts: Sequence[StopCheck], *, is_whole: bool) -> StopCheck:
    """Return one check of all parts; without all of them nothing is safe."""
    latest = max(parts, key=lambda part: part.committed_at_ms or 0)
    unsafe = [each for each in parts if each.safe_count < each.worker_count]
    workers = [blocker for each in parts for blocker in each.workers]
    reason = _worst([each.reason for each in parts])
    return StopCheck(
        reason=reason if is_whole else StopReason.TOO_MANY_WORKERS,
        checked_at_ms=parts[0].checked_at_ms,
        held=_sum([each.held for each in parts]),
        committed_at_ms=latest.committed_at_ms,
        audit_id=latest.audit_id,
        clears_at_ms=_last([each.clears_at_ms for each in unsafe]),
        worker_count=sum(each.worker_count for each in parts),
        safe_count=sum(each.safe_count for each in parts),
        workers=tuple(workers[:STOP_BLOCKERS_MAX]),
    )


async def wait_until_safe(look: Look, *, wait_ms: int, stopping: asyncio.Event) -> StopCheck:
    """Look again and again until a stop is safe, the time is over, or the server stops."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + wait_ms / 1000
    while True:
        began = loop.time()
        found = await look()
        now = loop.time()
        if found.is_safe or now >= ends_at or stopping.is_set():
            return found
        pause_s = max(STOP_LOOK_MS / 1000, (now - began) * STOP_LOOK_BUDGET)
        try:
            async with asyncio.timeout(min(pause_s, ends_at - now)):
                await stopping.wait()
        except TimeoutError:
            continue
