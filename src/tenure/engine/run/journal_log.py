"""What is told to operators of journals that get large."""

from __future__ import annotations

import structlog

from tenure.core.journal import room
from tenure.core.journal.numbering import JournalEnd
from tenure.store.table.journal import JournalRows

log = structlog.get_logger("tenure.engine")


def note_large(journals: JournalRows) -> None:
    """Log each journal that a committed batch has made large, once."""
    for key, end in journals.ends.items():
        found = journals.found_ends.get(key, JournalEnd(end.journal_id))
        if room.is_large(end) and not room.is_large(found):
            namespace, run_id = key
            log.warning(
                "run.journal_large",
                namespace=namespace,
                run_id=run_id,
                entries=end.pos,
                bytes=end.total_bytes,
            )
