"""Commands of an operator for many workers at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from tenure.core import check, limits
from tenure.core.filter import WorkerFilter
from tenure.core.limits import DRAIN_DEADLINE_MS
from tenure.core.worker.record import Worker, WorkerStatus
from tenure.engine.read import query
from tenure.engine.read.query import WorkerView
from tenure.engine.worker import command as c
from tenure.errors import InvalidArgument, NotFound, WrongState

if TYPE_CHECKING:
    from tenure.engine.engine import Engine

_ACTIVE: Final = (WorkerStatus.ONLINE, WorkerStatus.DRAINING)


async def drain_matching(
    engine: Engine,
    *,
    namespace: str,
    labels: Mapping[str, str] | None = None,
    version: str = "",
    deadline_ms: int = DRAIN_DEADLINE_MS,
    actor: str = "",
) -> tuple[str, ...]:
    """Drain the active workers that have all labels and the version; return their ids.

    Workers that are draining already are included, so that repeating the call gives the same
    answer. After a failure some workers are draining, and the call may be repeated.
    """
    _check_choice(labels, version)
    check.duration_ms(deadline_ms, "deadlineMs")
    namespace = check.namespace(namespace)
    wish = _Wish(deadline_ms, actor)
    drained: dict[str, None] = {}
    for status in _ACTIVE:
        where = WorkerFilter(status=status, version=version, labels=dict(labels or {}))
        async for views in _pages(engine, namespace, where):
            workers = [view.worker for view in views]
            drained.update(dict.fromkeys(await _drain_page(engine, workers, wish)))
    return tuple(drained)


async def list_matching(
    engine: Engine, *, namespace: str, labels: Mapping[str, str], version: str
) -> list[tuple[str, int]]:
    """Return the workers that a drain would find, up to a limit, with how many attempts each holds.

    Those that are draining already are left out: nothing happens to them.
    """
    _check_choice(labels, version)
    namespace = check.namespace(namespace)
    where = WorkerFilter(status=WorkerStatus.ONLINE, version=version, labels=dict(labels))
    found: list[tuple[str, int]] = []
    async for views in _pages(engine, namespace, where):
        found += [(view.worker.id, view.held.count) for view in views]
        if len(found) >= limits.REHEARSED_MAX:
            break
    return found[: limits.REHEARSED_MAX]


def _check_choice(labels: Mapping[str, str] | None, version: str) -> None:
    if not labels and not version:
        message = "Give labels or a version. This prevents draining all workers by mistake."
        raise InvalidArgument(message, field="labels")


async def _pages(
    engine: Engine, namespace: str, where: WorkerFilter
) -> AsyncIterator[Sequence[WorkerView]]:
    """Yield the workers that match a filter, page by page."""
    token = ""
    while True:
        request = query.PageRequest(
            cursor_key=engine.secrets.cursor_key, size=limits.PAGE_SIZE_MAX, token=token
        )
        page = await query.list_workers(
            engine.store, namespace=namespace, page=request, where=where
        )
        yield page.items
        token = page.next_page_token
        if not token:
            return


class _Wish(msgspec.Struct, frozen=True, gc=False):
    """Until when workers have to be finished, and who requested it."""

    deadline_ms: int
    actor: str


async def _drain_page(engine: Engine, workers: Sequence[Worker], wish: _Wish) -> list[str]:
    """Drain the workers of one page together, in one batch; the page limits their number."""
    answers = await asyncio.gather(
        *(_drain(engine, worker, wish) for worker in workers), return_exceptions=True
    )
    drained = []
    for worker, answer in zip(workers, answers, strict=True):
        if isinstance(answer, BaseException):
            raise answer
        if answer:
            drained.append(worker.id)
    return drained


async def _drain(engine: Engine, worker: Worker, wish: _Wish) -> bool:
    """Drain one worker; return whether it was still active."""
    if worker.status is WorkerStatus.DRAINING:
        return True
    command = c.DrainWorker(
        namespace=worker.namespace,
        worker_id=worker.id,
        deadline_ms=wish.deadline_ms,
        actor=wish.actor,
    )
    try:
        await engine.submit(command)
    except (NotFound, WrongState):
        # It went offline, or was removed, after it was listed.
        return False
    return True
