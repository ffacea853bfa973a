"""The last heartbeats of the workers that this server hears, in memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Final

import msgspec

from tenure.core.limits import BEATS_KEPT, BEATS_WORKERS_MAX, MINUTE_MS
from tenure.engine.command import AnyCommand
from tenure.engine.worker import command as c

# Each heartbeat is an instant since the first one, a total, and a lag with a count.
_FIELDS: Final = 3
_HALF: Final = 16
_HALF_MAX: Final = 2**_HALF - 1
_WHOLE_MAX: Final = 2**32 - 1


class PastBeat(msgspec.Struct, frozen=True, gc=False):
    """An accepted heartbeat: how much the worker has ended in all, runs now, and lags."""

    at_ms: int
    ended_total: int
    active_count: int
    loop_lag_ms: int


class _Track:
    """The heartbeats of one worker, twelve bytes each: thousands of workers have some hundreds."""

    __slots__ = ("beats", "first_at_ms", "first_total")

    def __init__(self, at_ms: int, total: int) -> None:
        self.first_at_ms = at_ms
        self.first_total = total
        self.beats = array("I")


class BeatLog:
    """Adds the heartbeats of each batch after its commit."""

    def __init__(self) -> None:
        """Start without having heard a worker."""
        self._tracks: dict[str, _Track] = {}

    def note(self, commands: Iterable[AnyCommand], answers: Iterable[object], now_ms: int) -> None:
        """Keep the accepted heartbeats of a batch."""
        for command, answer in zip(commands, answers, strict=True):
            if type(answer) is not c.Renewed or not isinstance(command, c.Heartbeat):
                continue
            lease, beat = answer.lease, command.beat
            total = lease.total_completed + lease.total_failed
            track = self._tracks.get(command.worker_id)
            if track is None:
                if len(self._tracks) >= BEATS_WORKERS_MAX:
                    del self._tracks[next(iter(self._tracks))]
                track = self._tracks[command.worker_id] = _Track(now_ms, total)
            beats = track.beats
            if len(beats) >= BEATS_KEPT * _FIELDS:
                del beats[:_FIELDS]
            lag = min(beat.loop_lag_ms, _HALF_MAX) << _HALF
            beats.append(min(max(0, now_ms - track.first_at_ms), _WHOLE_MAX))
            beats.append(min(max(0, total - track.first_total), _WHOLE_MAX))
            beats.append(lag | min(beat.active_count, _HALF_MAX))

    def forget(self, worker_ids: Iterable[str]) -> None:
        """Forget workers that have ended."""
        for worker_id in worker_ids:
            self._tracks.pop(worker_id, None)

    def of(self, worker_id: str) -> list[PastBeat]:
        """Return the last heartbeats of a worker, oldest first; none if this server hears none."""
        track = self._tracks.get(worker_id)
        if track is None:
            return []
        beats = track.beats
        return [
            PastBeat(
                track.first_at_ms + beats[at],
                track.first_total + beats[at + 1],
                beats[at + 2] & _HALF_MAX,
                beats[at + 2] >> _HALF,
            )
            for at in range(0, len(beats), _FIELDS)
        ]

    def per_minute(self, worker_id: str, now_ms: int) -> int | None:
        """Return how many attempts a worker ended in the last minute, as far as it said so."""
        beats = self.of(worker_id)
        if not beats:
            return None
        before = [each for each in beats if each.at_ms <= now_ms - MINUTE_MS]
        return beats[-1].ended_total - (before[-1] if before else beats[0]).ended_total

    def last_result_at_ms(self, worker_id: str) -> int | None:
        """Return when a heartbeat last told of an ended attempt."""
        beats = self.of(worker_id)
        for earlier, later in zip(reversed(beats[:-1]), reversed(beats), strict=False):
            if later.ended_total > earlier.ended_total:
                return later.at_ms
        return None
