"""Which API key each worker belongs to, if this server has read its row recently.

Calls that load the row of their worker compare its key. Other calls would have to read it only for
that: they ask here first, and read it only if it is not known. A worker that was registered with
another key at another server is known under its old key for some time.
"""

from __future__ import annotations

from collections.abc import Iterable

from tenure.core.limits import WORKER_KEY_KEPT_MS, WORKER_KEYS_KEPT_MAX
from tenure.core.worker import decide as worker_rules
from tenure.core.worker.record import Worker, WorkerMode
from tenure.engine.clock import Clock


class WorkerKeys:
    """The keys of workers, bounded in number and in age."""

    def __init__(self, clock: Clock) -> None:
        """Start without known workers."""
        self._clock = clock
        self._seen: dict[str, tuple[Worker, int]] = {}

    def learn(self, workers: Iterable[Worker]) -> None:
        """Keep workers as they were read or written just now.

        Not those with sessions: messages on their stream are not checked again.
        """
        mono_ms = self._clock.monotonic_ms()
        for worker in workers:
            if worker.mode is WorkerMode.SESSION:
                continue
            if len(self._seen) >= WORKER_KEYS_KEPT_MAX and worker.id not in self._seen:
                self._seen.clear()
            self._seen[worker.id] = (worker, mono_ms)

    def unproven(self, namespace: str, worker_id: str, speaker: str | None) -> str | None:
        """Return the key that has to be compared with the worker's; ``None`` if none has."""
        if speaker is None:
            return None
        known = self._seen.get(worker_id)
        if known is None:
            return speaker
        worker, seen_at_ms = known
        is_fresh = self._clock.monotonic_ms() - seen_at_ms < WORKER_KEY_KEPT_MS
        is_its_own = (
            worker.namespace == namespace and worker_rules.speaker_refusal(worker, speaker) is None
        )
        return None if is_fresh and is_its_own else speaker
