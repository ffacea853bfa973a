"""The answers to callbacks, as the worker contract has them."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, UnsetType

from tenure.api.http.edge.strict_json import is_json
from tenure.api.http.view import Instant, View, instant, instant_or_unset, names, or_unset
from tenure.core.task.callback import CallbackAttempt
from tenure.core.task.record import TaskState

StateName = Annotated[str, names(TaskState)]
_FRESH = "In the place of the old one, whose life is half over"


class StartedView(View, frozen=True):
    """The attempt is this process' own."""

    acknowledged: bool
    server_time: Instant
    task_token: Annotated[str, Meta(description=_FRESH)] | UnsetType = UNSET
    token_expires_at: Instant | UnsetType = UNSET


class HeartbeatView(View, frozen=True):
    """The progress is noted; with shouldCancel the grace of a cancel has begun."""

    acknowledged: bool
    should_cancel: bool
    server_time: Instant
    cancel_reason: str | UnsetType = UNSET
    task_token: Annotated[str, Meta(description=_FRESH)] | UnsetType = UNSET
    token_expires_at: Instant | UnsetType = UNSET


class CompletedView(View, frozen=True):
    """The end is stored; finalState is the state of the task now."""

    acknowledged: bool
    final_state: StateName
    server_time: Instant
    next_attempt_at: (
        Annotated[Instant, Meta(description="If it is retried: not before")] | UnsetType
    ) = UNSET


class CallbackItem(View, frozen=True):
    """What the process behind an endpoint said about an attempt, by its own clock."""

    worker_id: str | UnsetType = UNSET
    accepted_at: Instant | UnsetType = UNSET
    started_at: Instant | UnsetType = UNSET
    heartbeat_at: Instant | UnsetType = UNSET
    completed_at: Instant | UnsetType = UNSET
    metrics: dict[str, float] | UnsetType = UNSET
    output: Raw | UnsetType = UNSET
    cancelled_during_phase: str | UnsetType = UNSET
    partial_progress: Raw | UnsetType = UNSET


def callback(found: CallbackAttempt | None) -> CallbackItem | UnsetType:
    """Show what a process said; other workers say nothing of the kind."""
    if found is None:
        return UNSET
    said = found.report
    return CallbackItem(
        worker_id=or_unset(said.worker),
        accepted_at=instant_or_unset(found.accepted_at_ms),
        started_at=instant_or_unset(said.started_at_ms),
        heartbeat_at=instant_or_unset(said.beat_at_ms),
        completed_at=instant_or_unset(said.completed_at_ms),
        metrics=said.metrics or UNSET,
        output=_json(said.output),
        cancelled_during_phase=or_unset(said.phase),
        partial_progress=_json(said.partial_progress),
    )


def _json(data: bytes | None) -> Raw | UnsetType:
    return Raw(data) if data is not None and is_json(data) else UNSET


def server_time(now_ms: int) -> dict[str, Any]:
    """Return what every answer begins with."""
    return {"acknowledged": True, "server_time": instant(now_ms)}
