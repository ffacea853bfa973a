"""Converts journals between records of the core and messages of the wire."""

from __future__ import annotations

from typing import Final

from tenure.api.rpc.view import task_view
from tenure.core.journal.entry import Entry, EntryKind, JournalPage
from tenure.v1 import task_pb2

_KINDS: Final = {kind: task_pb2.EntryKind.Value(f"ENTRY_KIND_{kind.name}") for kind in EntryKind}


def page(task_id: str, attempt: int, shown: JournalPage) -> task_pb2.JournalPage:
    """Show entries of a journal to whoever holds its run in this attempt."""
    return task_pb2.JournalPage(
        task_id=task_id,
        attempt=attempt,
        after=shown.after,
        entries=[entry(each) for each in shown.entries],
        end=shown.end,
    )


def entry(stored: Entry) -> task_pb2.Entry:
    """Show an entry as it stands in its journal."""
    body = stored.content
    return task_pb2.Entry(
        pos=stored.pos,
        at_ms=stored.at_ms,
        attempt=stored.attempt,
        no=stored.no,
        content=task_pb2.NewEntry(
            kind=_KINDS[stored.kind],
            key=stored.key,
            index=body.index,
            output=body.output,
            encoding=body.encoding,
            error=task_view.task_error(body.error),
            attempts=body.attempts,
            started_at_ms=body.started_at_ms,
            took_ms=body.took_ms,
            fire_at_ms=body.fire_at_ms,
            site=body.site,
            next_at_ms=body.next_at_ms,
        ),
        signal_id=body.signal_id,
        sender=body.sender,
    )
