"""What an attempt has that an endpoint works on: its times, and what the process said about it.

Such a process has no lease. Each callback is a report on one attempt, for which its task token
vouches, so the attempt itself keeps what else a worker would have.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from tenure.core.limits import (
    CALLBACK_DELIVERY_TIMEOUT_MS,
    CALLBACK_HEARTBEAT_INTERVAL_MS,
    CALLBACK_HEARTBEAT_TIMEOUT_MS,
    CALLBACK_TOKEN_MS,
)


class CallbackTimes(
    msgspec.Struct,
    frozen=True,
    gc=False,
    omit_defaults=True,
    rename={
        "heartbeat_interval_ms": "hi",
        "heartbeat_timeout_ms": "ht",
        "delivery_timeout_ms": "d",
        "token_ms": "t",
    },
):
    """The times of an endpoint, kept with each of its attempts; those of the task come first."""

    heartbeat_interval_ms: int = CALLBACK_HEARTBEAT_INTERVAL_MS
    heartbeat_timeout_ms: int = CALLBACK_HEARTBEAT_TIMEOUT_MS
    delivery_timeout_ms: int = CALLBACK_DELIVERY_TIMEOUT_MS
    token_ms: int = CALLBACK_TOKEN_MS

    def __post_init__(self) -> None:
        """Check the rule of the worker contract."""
        assert self.heartbeat_timeout_ms >= 2 * self.heartbeat_interval_ms


class CallbackReport(
    msgspec.Struct,
    frozen=True,
    gc=False,
    kw_only=True,
    omit_defaults=True,
    rename={
        "worker": "w",
        "started_at_ms": "s",
        "beat_at_ms": "b",
        "completed_at_ms": "c",
        "metrics": "m",
        "output": "o",
        "phase": "p",
        "partial_progress": "pp",
    },
):
    """What a process says in its callbacks. Its instants are shown and never used.

    ``output`` is the part that a failed attempt has finished; that of a successful one belongs to
    the task.
    """

    worker: str = ""
    started_at_ms: int = 0
    beat_at_ms: int = 0
    completed_at_ms: int = 0
    metrics: dict[str, float] = {}
    output: bytes | None = None
    phase: str = ""
    partial_progress: bytes | None = None


class CallbackAttempt(
    msgspec.Struct,
    frozen=True,
    gc=False,
    omit_defaults=True,
    rename={"times": "t", "accepted_at_ms": "a", "report": "r"},
):
    """One attempt of an endpoint; ``accepted_at_ms`` is when the endpoint took its envelope."""

    times: CallbackTimes = CallbackTimes()
    accepted_at_ms: int = 0
    report: CallbackReport = CallbackReport()


_NOTHING: Final = CallbackAttempt()


def noted(callback: CallbackAttempt | None, said: CallbackReport) -> CallbackAttempt:
    """Return an attempt with what its process said now; what it did not repeat stays."""
    known = callback or _NOTHING
    old = known.report
    report = CallbackReport(
        # The first one that said it works on the attempt.
        worker=old.worker or said.worker,
        started_at_ms=said.started_at_ms or old.started_at_ms,
        beat_at_ms=said.beat_at_ms or old.beat_at_ms,
        completed_at_ms=said.completed_at_ms or old.completed_at_ms,
        metrics=said.metrics or old.metrics,
        output=said.output,
        phase=said.phase,
        partial_progress=said.partial_progress,
    )
    return known if report == old else replace(known, report=report)


def is_anothers(callback: CallbackAttempt | None, worker: str) -> bool:
    """Return whether another process works on an attempt than the one that says so."""
    return callback is not None and callback.report.worker not in {"", worker}
