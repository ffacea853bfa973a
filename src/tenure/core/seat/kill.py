"""What a served worker is told to stop."""

from __future__ import annotations

import enum

import msgspec

from tenure.core.task.effect import StopCause


class KillReason(enum.StrEnum):
    """Why a worker has to stop an attempt."""

    CANCEL = "cancel"
    NOT_HELD = "not_held"


class Kill(msgspec.Struct, frozen=True, gc=False):
    """An attempt to stop: within its grace, or at once because it is not the worker's."""

    task_id: str
    attempt: int
    reason: KillReason
    cause: StopCause | None = None
