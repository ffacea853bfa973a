"""The record of a seat: where a worker is reached, who drives it, and what its driver saw last."""

from __future__ import annotations

import msgspec

from tenure.core.worker.record import WorkerMode


class Seat(msgspec.Struct, frozen=True, gc=False):
    """The seat of one worker; without a ``server_id`` it is free.

    ``address`` is where the worker listens, ``caller`` the host from which it was registered.
    ``is_open`` is over when the worker goes offline. ``driver_at_ms`` is when the owner last showed
    that it drives its seats; it is read with the seat, from the owner's row.
    """

    worker_id: str
    namespace: str
    mode: WorkerMode
    address: str
    caller: str
    is_open: bool = True
    server_id: str | None = None
    session_no: int = 0
    taken_at_ms: int = 0
    driver_at_ms: int | None = None

    def is_free_for(self, server_id: str, *, now_ms: int, stale_ms: int) -> bool:
        """Return whether a server may take it: nobody else drives it, or not for so long.

        An owner that was seen in the future has not shown itself since the clock was set back.
        """
        if not self.is_open:
            return False
        if self.server_id is None or self.server_id == server_id:
            return True
        return self.driver_at_ms is None or not 0 <= now_ms - self.driver_at_ms <= stale_ms


class SeatNote(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What the driver of a seat saw last; shown to people, and nothing is decided by it."""

    worker_id: str
    call_at_ms: int = 0
    call_ms: int = 0
    call_error: str = ""
    unconfirmed_count: int = 0
    kill_count: int = 0


class SeatView(msgspec.Struct, frozen=True, gc=False):
    """A seat as it is shown."""

    seat: Seat
    note: SeatNote
