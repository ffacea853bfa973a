"""Entries of children and groups, and what is open, as a worker gets them."""

from __future__ import annotations

from tenure.api.rpc.view import journal_view
from tenure.core.journal.entry import (
    Entry,
    EntryBody,
    EntryKind,
    JournalPage,
    OpenChild,
    OpenGroup,
    encode_body,
)
from tenure.core.task.retry import ErrorCategory, ErrorInfo
from tenure.v1 import task_pb2

AT_MS = 1_000_000
CHILD = "019b0000-0000-7000-8000-00000000000c"
GROUP = "019b0000-0000-7000-8000-0000000000b0"
FAULT = ErrorInfo(ErrorCategory.USER_CODE, "no such card", type="CardError")


def stored(kind: EntryKind, key: str, body: EntryBody) -> Entry:
    return Entry(
        journal_id="019b0000-0000-7000-8000-00000000000a",
        pos=3,
        at_ms=AT_MS,
        attempt=0,
        no=0,
        kind=kind,
        key=key,
        body=encode_body(body, AT_MS),
        total_bytes=100,
    )


def test_the_end_of_a_child_comes_with_its_id_type_state_and_reason() -> None:
    body = EntryBody(
        index=2, error=FAULT, task_id=CHILD, type="charge", state="failed", reason="POISONED"
    )
    shown = journal_view.entry(stored(EntryKind.CHILD, "1/charge", body))
    assert shown.child == task_pb2.ChildEnd(
        task_id=CHILD, type="charge", state=task_pb2.TASK_STATE_FAILED, failure_reason="POISONED"
    )
    assert (shown.content.kind, shown.content.index) == (task_pb2.ENTRY_KIND_CHILD, 2)
    assert (shown.content.error.type, shown.HasField("group")) == ("CardError", False)


def test_the_end_of_a_group_comes_with_its_counts() -> None:
    body = EntryBody(group_id=GROUP, total=5, succeeded=3, failed=1, cancelled=1, error=FAULT)
    shown = journal_view.entry(stored(EntryKind.GROUP, "map:resize", body))
    assert shown.group == task_pb2.GroupEnd(
        group_id=GROUP, total=5, succeeded=3, failed=1, cancelled=1
    )
    assert (shown.content.error.message, shown.HasField("child")) == ("no such card", False)


def test_other_entries_are_neither() -> None:
    shown = journal_view.entry(stored(EntryKind.STEP, "charge", EntryBody(output=b"1")))
    assert not shown.HasField("child")
    assert not shown.HasField("group")


def test_a_page_from_the_start_comes_with_what_is_open() -> None:
    page = JournalPage(
        after=0,
        entries=(),
        end=0,
        open=(
            OpenChild(CHILD, "charge", 1, "charge", is_run=False),
            OpenChild(GROUP, "child:order", 2, "order", is_run=True),
        ),
        open_next=GROUP,
        groups=(OpenGroup(GROUP, "map:resize", 4, "resize", 10, 8, 5, 1),),
    )
    shown = journal_view.page("run", 7, page)
    assert [each.kind for each in shown.open] == [
        task_pb2.TASK_KIND_ACTIVITY,
        task_pb2.TASK_KIND_WORKFLOW,
    ]
    assert (shown.open[1].task_id, shown.open[1].key, shown.open[1].index) == (
        GROUP,
        "child:order",
        2,
    )
    assert shown.open_next == GROUP
    assert list(shown.groups) == [
        task_pb2.OpenGroup(
            group_id=GROUP,
            key="map:resize",
            index=4,
            type="resize",
            total=10,
            spawned=8,
            open_count=5,
            failed=1,
        )
    ]
    assert not shown.group_key
