"""Sessions that end: one is a crash, many at once are a problem of the network or the server."""

from __future__ import annotations

from collections import deque

from msgspec.structs import replace

from tenure.core.limits import SUSPECT_GRACE_MS
from tenure.core.worker.judge import is_mass_close
from tenure.engine.command import AnyCommand
from tenure.engine.worker import command as c


class SessionLosses:
    """Keeps for three seconds which workers closed their session."""

    def __init__(self) -> None:
        """Start without closed sessions."""
        self._closed: deque[tuple[int, str]] = deque()
        self._unanswered: deque[tuple[int, str, int]] = deque()

    def closed(self, worker_id: str, *, mono_ms: int, open_count: int) -> frozenset[str]:
        """Note a closed session; return which workers not to suspect."""
        self._closed.append((mono_ms, worker_id))
        while self._closed[0][0] <= mono_ms - SUSPECT_GRACE_MS:
            self._closed.popleft()
        if is_mass_close(closed_count=len(self._closed), open_count=open_count):
            return frozenset(worker for _, worker in self._closed)
        return frozenset()

    def unanswered(self, command: AnyCommand, answer: object, *, mono_ms: int) -> None:
        """Note a heartbeat that was accepted after its sender had closed its session."""
        if isinstance(command, c.Heartbeat) and isinstance(answer, c.Renewed):
            self._unanswered.append((mono_ms, command.worker_id, answer.lease.token))
        while self._unanswered and self._unanswered[0][0] <= mono_ms - SUSPECT_GRACE_MS:
            self._unanswered.popleft()

    def with_token(self, close: c.CloseSession) -> c.CloseSession:
        """Return the last heartbeat of a session, if it was accepted after its end."""
        tokens = [token for _, worker, token in self._unanswered if worker == close.worker_id]
        return replace(close, token=max(tokens)) if tokens else close
