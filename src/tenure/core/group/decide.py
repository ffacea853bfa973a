"""How a group grows, how its items end, and when its run hears of it."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core.group.record import Group
from tenure.core.journal.entry import Entry, EntryBody, EntryKind, NewEntry, encode_body
from tenure.core.journal.numbering import size_of
from tenure.core.run import child
from tenure.core.task.record import Task, TaskState
from tenure.errors import Rejection


def fresh_items(group: Group, items: list[int]) -> int | Rejection:
    """Return how many of the items of a report are passed over; they come in their order.

    Those are stored already, or too late: whoever has not heard that a group takes no more items
    goes on, and nothing of that is stored.
    """
    if not items:
        return 0
    if items != list(range(items[0], items[0] + len(items))) or items[-1] >= group.total:
        message = f"Group {group.key} has the items 0 to {group.total - 1}, in their order."
        return Rejection("invalid_argument", message, {"field": "item"})
    if group.has_ended or group.is_closed:
        return len(items)
    if items[0] > group.spawned:
        message = f"Item {items[0]} came before item {group.spawned}. Send all from there on."
        return Rejection("out_of_order", message, {"expected_no": group.spawned})
    return min(group.spawned - items[0], len(items))


def grow(group: Group, count: int) -> Group:
    """Return a group with more items."""
    return replace(group, spawned=group.spawned + count, open_count=group.open_count + count)


def close(group: Group) -> Group:
    """Return a group that takes no more items: its run has cancelled it."""
    return group if group.is_closed else replace(group, is_closed=True)


def end_item(group: Group, item: Task) -> Group:
    """Return a group of which one more item has ended."""
    return replace(
        group,
        open_count=group.open_count - 1,
        failed_count=group.failed_count + (item.state is TaskState.FAILED),
        cancelled_count=group.cancelled_count + (item.state is TaskState.CANCELLED),
    )


def item_entry(group_id: str, item: Task, now_ms: int) -> Entry:
    """Return the end of an item as it stands in the journal of its group."""
    number = child.place_of(item).item
    new = child.ended(item, key=str(number), index=number)
    body = encode_body(new.body, now_ms)
    return Entry(
        journal_id=group_id,
        pos=number + 1,
        at_ms=now_ms,
        attempt=0,
        no=0,
        kind=new.kind,
        key=new.key,
        body=body,
        # Positions are taken in any order, so each entry has its own size.
        total_bytes=size_of(new.key, body),
    )


def end(group: Group, item: Task | None = None) -> tuple[Group, NewEntry] | None:
    """Return a group that has ended with an item, and what its run hears; ``None`` if it goes on.

    One that fails fast ends with the first item that did not succeed. One that its run has
    cancelled ends when all of its items have, which is what its run waits for.
    """
    if group.has_ended:
        return None
    can_fail = group.fails_fast and not group.is_closed
    is_failure = item is not None and item.state is not TaskState.SUCCEEDED and can_fail
    is_whole = group.is_closed or group.spawned == group.total
    if not is_failure and (group.open_count or not is_whole):
        return None
    error = child.error_of(item) if item is not None and is_failure else None
    body = EntryBody(
        index=group.call_index,
        error=error,
        group_id=group.group_id,
        total=group.total,
        succeeded=group.succeeded_count,
        failed=group.failed_count,
        cancelled=group.cancelled_count,
    )
    return replace(group, has_ended=True), NewEntry(EntryKind.GROUP, group.key, body)
