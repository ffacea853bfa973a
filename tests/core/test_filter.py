"""Filters of lists: what they refuse, and what cursors are bound to."""

from __future__ import annotations

import pytest

from tenure.core.filter import (
    ALL_RUNS,
    ALL_TASKS,
    ALL_WORKERS,
    RunFilter,
    TaskFilter,
    WorkerFilter,
    query_text,
)
from tenure.core.run.status import RunStatus
from tenure.core.task.record import TaskState
from tenure.core.worker.health import Health
from tenure.core.worker.record import WorkerStatus
from tenure.errors import InvalidArgument

AnyFilter = TaskFilter | RunFilter | WorkerFilter
GOOD: list[AnyFilter] = [
    ALL_TASKS,
    TaskFilter(queue="q", type="t", state=TaskState.PENDING),
    ALL_RUNS,
    RunFilter(
        queue="q",
        type="t",
        status=RunStatus.PARKED,
        labels={"a": "b"},
        created_from_ms=0,
        created_to_ms=1,
    ),
    ALL_WORKERS,
    WorkerFilter(
        queue="q",
        status=WorkerStatus.ONLINE,
        version="1.0 (β)",
        labels={"a": "b"},
        health=Health.DEAF,
    ),
]


@pytest.mark.parametrize("good", GOOD)
def test_a_good_filter_is_returned_as_it_is(good: AnyFilter) -> None:
    assert good.checked() is good


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (TaskFilter(queue="a b"), "queue"),
        (TaskFilter(type="a\nb"), "type"),
        (RunFilter(type="a b"), "type"),
        (RunFilter(labels={"a b": ""}), "labels"),
        (RunFilter(created_from_ms=-1), "createdFrom"),
        (RunFilter(created_to_ms=2**60), "createdTo"),
        (WorkerFilter(queue="a b"), "queue"),
        (WorkerFilter(version="v" * 1_025), "version"),
        (WorkerFilter(labels={"__proto__": "x"}), "labels"),
    ],
)
def test_a_bad_field_is_named(bad: AnyFilter, field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        bad.checked()
    assert caught.value.fields == {"field": field}


def test_the_text_of_a_query_differs_with_every_field_and_not_with_the_order_of_labels() -> None:
    texts = [query_text("x", each) for each in GOOD]
    texts += [query_text("y", GOOD[0]), query_text("x", WorkerFilter(labels={"a": "b&c=d"}))]
    texts += [query_text("x", WorkerFilter(labels={"a": "b", "c": "d"}))]
    assert len(set(texts)) == len(texts)
    turned = WorkerFilter(labels={"c": "d", "a": "b"})
    assert query_text("x", turned) == texts[-1]
