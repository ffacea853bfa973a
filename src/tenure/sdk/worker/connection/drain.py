"""When a draining worker hands back its tasks, and when it stops waiting for the server."""

from __future__ import annotations

from typing import Final

# Time for activities to clean up when they are handed back, to report that, and to say goodbye.
FLUSH_S: Final = 10.0
# A task that is handed back before the server knows of the drain comes back to this worker.
NOTICE_S: Final = 1.0


class WorkerDrain:
    """One drain, from the request to its end. Pure: the caller passes the time."""

    def __init__(self, asked_at_s: float, deadline_s: float) -> None:
        self.asked_at_s = asked_at_s
        self.deadline_at_s = asked_at_s + deadline_s

    def shorten(self, deadline_at_s: float) -> None:
        """End earlier than planned: a second signal, or the server's own deadline."""
        self.deadline_at_s = min(self.deadline_at_s, deadline_at_s)

    def is_due(self, now_s: float, *, is_known: bool) -> bool:
        """Return whether the tasks must be handed back now. The server should know first."""
        notice_s = 0.0 if is_known else NOTICE_S
        return now_s >= self.deadline_at_s + notice_s

    def is_hopeless(
        self, now_s: float, *, held_count: int, is_connected: bool, is_denied: bool = False
    ) -> bool:
        """Return whether the worker should stop waiting for the server.

        With something to report, it waits until the deadline and a little longer. Without, it waits
        only a moment, because the lease ends by itself. It also waits only a moment for a server
        that refuses its API key.
        """
        flush_s = NOTICE_S if is_denied else FLUSH_S
        if now_s >= self.deadline_at_s + flush_s:
            return True
        is_idle = not held_count and not is_connected
        return is_idle and now_s >= self.asked_at_s + flush_s
