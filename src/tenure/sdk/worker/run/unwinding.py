"""Plain bodies that were put aside and whose threads have not ended."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tenure.sdk.worker.run.held_run import HeldRun

_log = logging.getLogger("tenure.worker")
# So long a body may unwind before it is named.
_GRACE_S: Final = 5.0


class Unwinding:
    """Names each body that does not end within some seconds, once; nobody waits for it."""

    def __init__(self) -> None:
        """Watch nothing yet."""
        self._until_s: list[tuple[float, HeldRun]] = []

    def __bool__(self) -> bool:
        return bool(self._until_s)

    def watch(self, held: HeldRun) -> None:
        """Watch a body that was put aside."""
        self._until_s.append((time.monotonic() + _GRACE_S, held))

    def look(self) -> None:
        """Forget what has ended, and name what should have."""
        now_s = time.monotonic()
        left: list[tuple[float, HeldRun]] = []
        for until_s, held in self._until_s:
            if held.thread is None or not held.thread.is_alive:
                continue
            if now_s < until_s:
                left.append((until_s, held))
            else:
                _name(held, held.thread.line)
        self._until_s = left


def _name(held: HeldRun, line: str) -> None:
    _log.warning(
        "The body of run %s (%s) does not end when it is put aside: it computes, or catches the "
        "exceptions that end it, at %s. It keeps a thread.",
        held.task.task_id,
        held.task.type,
        line,
        extra={"task_id": held.task.task_id, "task_type": held.task.type},
    )
