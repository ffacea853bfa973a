"""How much a journal takes: a full one lets its run park, never end."""

from __future__ import annotations

from tenure.core.journal.numbering import JournalEnd
from tenure.core.limits import (
    JOURNAL_BYTES_MAX,
    JOURNAL_BYTES_WARNING,
    JOURNAL_ENTRIES_MAX,
    JOURNAL_ENTRIES_WARNING,
    JOURNAL_RETRY_MS,
)
from tenure.errors import Rejection


def is_large(end: JournalEnd) -> bool:
    """Tell whether a journal is so large that somebody should look at it."""
    return end.pos >= JOURNAL_ENTRIES_WARNING or end.total_bytes >= JOURNAL_BYTES_WARNING


def _is_full(end: JournalEnd, times: int = 1) -> bool:
    is_long = end.pos > times * JOURNAL_ENTRIES_MAX
    return is_long or end.total_bytes > times * JOURNAL_BYTES_MAX


def full(after: JournalEnd) -> Rejection | None:
    """Refuse what a holder reports if the journal would be beyond its limit with it."""
    if not _is_full(after):
        return None
    message = (
        f"The journal of the run would have {after.pos} entries and {after.total_bytes} bytes; "
        f"at most {JOURNAL_ENTRIES_MAX} and {JOURNAL_BYTES_MAX} are allowed. "
        "Let the workflow begin anew with continue_as_new."
    )
    return Rejection("journal_full", message, {"limit": JOURNAL_ENTRIES_MAX})


def flooded(after: JournalEnd) -> Rejection | None:
    """Refuse a signal if the journal would have twice as much as a holder may write."""
    if not _is_full(after, 2):
        return None
    message = f"The journal of the run has {after.pos - 1} entries and takes no more signals."
    return Rejection("rate_limited", message, {"retry_after_ms": JOURNAL_RETRY_MS})
