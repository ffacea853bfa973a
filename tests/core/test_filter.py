"""Filters of lists: what they refuse, and what cursors are bound to."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tenure.core.filter import (
    ALL_RUNS,
    ALL_TASKS,
    ALL_WORKERS,
    RunFilter,
    TaskFilter,
    TaskSearch,
    WorkerFilter,
    instant_of,
    query_text,
    searched,
)
from tenure.core.run.status import RunStatus
from tenure.core.task.record import AttemptProgress, Line, Reason, Spec, Task, TaskState
from tenure.core.task.retry import ErrorCategory, ErrorInfo
from tenure.core.worker.health import Health
from tenure.core.worker.record import WorkerStatus
from tenure.errors import InvalidArgument

SOME_ID = "0190a000-0000-7000-8000-000000000001"
AnyFilter = TaskSearch | TaskFilter | RunFilter | WorkerFilter
GOOD: list[AnyFilter] = [
    ALL_TASKS,
    TaskFilter(queue="q", type="t", state=TaskState.PENDING),
    TaskSearch(),
    TaskSearch(
        queue="q",
        type="t*",
        states=(TaskState.PENDING,),
        worker_id=SOME_ID,
        labels={"a": "b"},
        error_type="Timeout",
        failure_reason=Reason.POISONED,
        created_from_ms=1,
        created_to_ms=2,
        id_prefix="0190a",
    ),
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
        (TaskSearch(type="a b*"), "type"),
        (TaskSearch(worker_id="x"), "workerId"),
        (TaskSearch(labels={"a b": ""}), "labels"),
        (TaskSearch(error_type="e" * 1_025), "errorType"),
        (TaskSearch(created_from_ms=-1), "createdAfter"),
        (TaskSearch(created_to_ms=2**60), "createdBefore"),
        (TaskSearch(id_prefix="X"), "idPrefix"),
        (TaskSearch(id_prefix="0" * 37), "idPrefix"),
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


FAILED = Task(
    id=SOME_ID,
    namespace="acme/default",
    queue="q",
    type="charge_card",
    state=TaskState.PENDING,
    line=Line.FRESH,
    spec=Spec(start_to_close_ms=1),
    created_at_ms=1,
    run_at_ms=1,
    labels={"a": "b", "c": "d"},
    progress=AttemptProgress(error=ErrorInfo(ErrorCategory.USER_CODE, "late", type="Timeout")),
)
AT_MS = 0x0190A0000000


@pytest.mark.parametrize(
    ("where", "is_taken"),
    [
        (TaskSearch(), True),
        (TaskSearch(queue="q", type="charge_*", states=(TaskState.PENDING,)), True),
        (TaskSearch(type="charge_card", labels={"c": "d"}, error_type="Timeout"), True),
        (TaskSearch(created_from_ms=AT_MS, created_to_ms=AT_MS + 1, id_prefix="0190a"), True),
        (TaskSearch(queue="other"), False),
        (TaskSearch(type="pay_*"), False),
        (TaskSearch(type="charge"), False),
        (TaskSearch(states=(TaskState.FAILED,)), False),
        (TaskSearch(worker_id=SOME_ID), False),
        (TaskSearch(labels={"a": "x"}), False),
        (TaskSearch(error_type="Other"), False),
        (TaskSearch(failure_reason=Reason.POISONED), False),
        (TaskSearch(created_from_ms=AT_MS + 1), False),
        (TaskSearch(created_to_ms=AT_MS), False),
        (TaskSearch(id_prefix="0190b"), False),
    ],
)
def test_a_search_takes_the_tasks_that_match_all_its_fields(
    where: TaskSearch, is_taken: bool
) -> None:
    assert where.takes(FAILED) is is_taken


def test_an_id_begins_with_its_instant() -> None:
    assert instant_of(SOME_ID) == AT_MS


def test_a_task_without_error_has_no_type_of_it() -> None:
    clean = replace(FAILED, progress=AttemptProgress(), labels=None)
    assert not TaskSearch(error_type="Timeout").takes(clean)
    assert not TaskSearch(labels={"a": "b"}).takes(clean)


def test_a_plain_filter_is_a_search_for_the_same() -> None:
    assert searched(TaskFilter()) == TaskSearch()
    plain = TaskFilter(queue="q", type="t", state=TaskState.PENDING)
    search = TaskSearch(queue="q", type="t", states=(TaskState.PENDING,))
    assert searched(plain) == search
    assert search.plain() == plain
    assert TaskSearch().plain() == TaskFilter()
    closer = TaskSearch(type="t*")
    assert closer.plain() is closer
    assert (TaskSearch(type="t").exact_type, TaskSearch(type="t*").exact_type) == ("t", "")
