"""Groups: how they grow, how their items end, and when their run hears of them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenure.core.group import decide as group_rules
from tenure.core.group.record import Group
from tenure.core.journal.entry import EntryKind
from tenure.core.journal.numbering import size_of
from tenure.core.run.record import Origin, RunLink, encode_origin
from tenure.core.task.event import AttemptFailed, AttemptSucceeded, CancelRequested
from tenure.core.task.record import Task
from tenure.errors import Rejection
from tests.core.task.tasks import (
    FATAL,
    JOURNAL_ID,
    NAMESPACE,
    T0,
    TASK_ID,
    after,
    fresh,
    report,
    running,
)

GROUP_ID = "0190a000-0000-7000-8000-000000000009"


def group(**changes: Any) -> Group:
    fields: dict[str, Any] = {
        "group_id": GROUP_ID,
        "namespace": NAMESPACE,
        "run_id": TASK_ID,
        "journal_id": JOURNAL_ID,
        "key": "map:x",
        "call_index": 2,
        "type": "mail",
        "fails_fast": False,
        "total": 5,
        **changes,
    }
    return Group(**fields)


def item(task: Task, number: int = 3) -> Task:
    origin = encode_origin(Origin(run_id=TASK_ID, group_id=GROUP_ID, item=number))
    return replace(task, link=RunLink(parent_id=GROUP_ID, origin=origin))


DONE = item(after(running(), report(AttemptSucceeded, running(), output=b"1")))
FAILED = item(after(running(), report(AttemptFailed, running(), error=FATAL)))
CANCELLED = item(after(fresh(), CancelRequested(reason="late")))


@pytest.mark.parametrize(
    ("items", "repeated"), [([], 0), ([2, 3], 0), ([0, 1], 2), ([1, 2, 3], 1), ([0], 1)]
)
def test_items_below_what_is_stored_are_repeats(items: list[int], repeated: int) -> None:
    assert group_rules.fresh_items(group(spawned=2), items) == repeated


@pytest.mark.parametrize("ended", [{"has_ended": True}, {"is_closed": True}])
def test_one_that_takes_no_more_passes_over_all_items(ended: dict[str, bool]) -> None:
    over = group(spawned=2, **ended)
    assert [group_rules.fresh_items(over, each) for each in ([1, 2], [3, 4])] == [2, 2]


@pytest.mark.parametrize(
    ("items", "code"),
    [
        ([3], "out_of_order"),
        ([2, 4], "invalid_argument"),
        ([3, 2], "invalid_argument"),
        ([5], "invalid_argument"),
    ],
)
def test_items_come_in_their_order(items: list[int], code: str) -> None:
    refusal = group_rules.fresh_items(group(spawned=2), items)
    assert isinstance(refusal, Rejection)
    assert refusal.code == code


def test_each_end_is_counted_as_what_it_is() -> None:
    counted = group_rules.grow(group(), 4)
    for task in (DONE, FAILED, CANCELLED):
        counted = group_rules.end_item(counted, task)
    assert (counted.spawned, counted.open_count) == (4, 1)
    assert (counted.succeeded_count, counted.failed_count, counted.cancelled_count) == (1, 1, 1)


def test_an_item_stands_at_its_number_with_its_own_size() -> None:
    entry = group_rules.item_entry(GROUP_ID, DONE, T0)
    assert (entry.journal_id, entry.pos, entry.key) == (GROUP_ID, 4, "3")
    assert (entry.kind, entry.attempt, entry.no) == (EntryKind.CHILD, 0, 0)
    assert entry.total_bytes == size_of("3", entry.body)
    assert (entry.content.index, entry.content.output) == (3, b"1")


def test_a_group_ends_when_all_items_are_there_and_have_ended() -> None:
    assert group_rules.end(group(spawned=5, open_count=1), DONE) is None
    assert group_rules.end(group(spawned=4), DONE) is None
    end = group_rules.end(group(spawned=5, failed_count=1, cancelled_count=2), FAILED)
    assert end is not None
    ended, entry = end
    assert ended.has_ended
    assert (entry.kind, entry.key) == (EntryKind.GROUP, "map:x")
    body = entry.body
    assert (body.index, body.group_id, body.total, body.error) == (2, GROUP_ID, 5, None)
    assert (body.succeeded, body.failed, body.cancelled) == (2, 1, 2)
    assert group_rules.end(ended, DONE) is None


@pytest.mark.parametrize("task", [FAILED, CANCELLED])
def test_one_that_fails_fast_ends_with_the_first_that_does_not_succeed(task: Task) -> None:
    open_ = group_rules.end_item(group_rules.grow(group(fails_fast=True), 2), task)
    end = group_rules.end(open_, task)
    assert end is not None
    ended, entry = end
    assert (ended.has_ended, ended.open_count) == (True, 1)
    assert entry.body.error is not None
    assert group_rules.end(group(fails_fast=True, spawned=2, open_count=1), DONE) is None


def test_a_closed_group_takes_no_more_and_ends_with_what_it_has() -> None:
    closed = group_rules.close(group(spawned=2, open_count=1))
    assert closed.is_closed
    assert group_rules.close(closed) is closed
    assert group_rules.end(closed) is None
    assert group_rules.end(group_rules.end_item(closed, DONE), DONE) is not None


def test_a_group_of_nothing_ends_at_once() -> None:
    assert group_rules.end(group(total=0)) is not None


@pytest.mark.parametrize(
    "counts", [{"spawned": 6}, {"spawned": 1, "open_count": 2}, {"spawned": 1, "failed_count": 2}]
)
def test_counts_that_cannot_be_are_refused(counts: dict[str, int]) -> None:
    with pytest.raises(AssertionError):
        group(**counts)


@pytest.mark.parametrize("task", [FAILED, CANCELLED])
def test_one_that_was_cancelled_waits_for_all_of_its_items(task: Task) -> None:
    open_ = group_rules.end_item(group_rules.grow(group(fails_fast=True, is_closed=True), 2), task)
    assert group_rules.end(open_, task) is None
    ended = group_rules.end(group_rules.end_item(open_, task), task)
    assert ended is not None
    assert ended[0].has_ended
