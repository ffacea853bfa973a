"""The fence of writes: a row that has changed since it was read is not written."""

from __future__ import annotations

from collections.abc import Sequence

from tenure.core.endpoint.record import Endpoint
from tenure.core.task.record import Task
from tenure.core.worker.record import Worker
from tenure.store.failure import FenceLost


def check_fence(
    records: Sequence[Task] | Sequence[Worker] | Sequence[Endpoint], written: int
) -> None:
    """Raise when a row has changed; which one does not matter, all are read again."""
    if written != len(records):
        raise FenceLost(frozenset(each.id for each in records))
