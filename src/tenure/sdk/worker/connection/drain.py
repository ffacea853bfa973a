"""When a worker that is to stop hands back what it holds, and when it waits no longer."""

from __future__ import annotations

from typing import Final

# Time for activities to clean up when they are handed back, to report that, and to say goodbye.
FLUSH_S: Final = 10.0
# Handed back before the server knows of the drain, a task would come back to the same worker.
NOTICE_S: Final = 1.0


class WorkerDrain:
    """One drain, from the request to its end; pure, the caller has the clock."""

    def __init__(self, asked_at_s: float, deadline_s: float) -> None:
        self.asked_at_s = asked_at_s
        self.deadline_at_s = asked_at_s + deadline_s

    def shorten(self, deadline_at_s: float) -> None:
        """End earlier than planned: a second signal, or the server's own deadline."""
        self.deadline_at_s = min(self.deadline_at_s, deadline_at_s)

    def is_due(self, now_s: float, *, is_known: bool) -> bool:
        """Tell whether what is held has to be handed back now; the server should know first."""
        notice_s = 0.0 if is_known else NOTICE_S
        return now_s >= self.deadline_at_s + notice_s

    def is_hopeless(
        self, now_s: float, *, held_count: int, is_connected: bool, is_denied: bool = False
    ) -> bool:
        """Tell whether waiting for the server makes no sense any more.

        With something to report it is waited for until the deadline, and a little longer; without,
        only for a moment: the lease ends by itself. One that refuses the API key will not take
        anything a little later either.
        """
        flush_s = NOTICE_S if is_denied else FLUSH_S
        if now_s >= self.deadline_at_s + flush_s:
            return True
        is_idle = not held_count and not is_connected
        return is_idle and now_s >= self.asked_at_s + flush_s
