"""Stop checks as people read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tenure.cli.show.text import age_text

if TYPE_CHECKING:
    from tenure.cli.show.view import ShownStopCheck

_TEXTS: Final = {
    "drained": "It gets nothing more and holds nothing.",
    "offline": "It is offline, and nothing that it held is left.",
    "not_drained": "It still gets tasks. Drain it first: tenure workers drain",
    "holds_attempts": "It holds attempts. They finish, or go back at the deadline.",
    "no_worker": "No worker matches.",
    "too_many_workers": "Not all workers could be read. Give more labels.",
}
_SHOWN_MAX: Final = 10


def facts(found: ShownStopCheck, now_ms: int) -> Iterator[tuple[str, object]]:
    """Return the verdict, and what shows it."""
    yield "safe to stop", "yes" if found.is_safe else "no"
    yield "reason", _TEXTS.get(found.reason, found.reason)
    if found.worker_count != 1:
        yield "workers", f"{found.safe_count} of {found.worker_count} may be stopped"
    plus = "" if found.is_held_count_exact else "+"
    yield "held", f"{found.held_count}{plus}, {found.unconfirmed_count} not confirmed"
    if found.oldest_held_at is not None:
        yield "oldest", f"{found.oldest_held_at} ({age_text(found.oldest_held_at, now_ms)} ago)"
    yield "nothing handed out since", found.committed_at
    yield "last result", found.last_result_at
    yield "clears at the latest", found.clears_at
    yield "audit record", found.audit_id
    yield "checked", found.checked_at
    for held in found.blockers[:_SHOWN_MAX]:
        age = age_text(held.handed_at, now_ms)
        yield "holds", f"{held.task_id} {held.type} attempt {held.attempt}, for {age}"
    for worker in found.workers[:_SHOWN_MAX]:
        yield "in the way", f"{worker.worker_id} {worker.reason}, {worker.held_count} held"
