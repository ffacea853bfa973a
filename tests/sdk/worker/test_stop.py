"""Why a worker is told to stop an attempt: the right reason, in every mode."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tenure.sdk.activity.context import StopReason
from tests.polling import eventually
from tests.sdk.worker.rig import FakeExecutor, Rig

# Heartbeats carry stops in poll mode, so they come often.
LEASE_MS = 3_000
MODES = ["session", "poll"]

End = Callable[[Rig, str], Awaitable[None]]
ENDS: dict[str, tuple[End, StopReason]] = {
    "terminated": (Rig.terminate, StopReason.TERMINATED),
    "completed": (Rig.complete, StopReason.COMPLETED),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ENDS)
async def test_a_worker_is_told_that_somebody_else_has_ended_its_running_task(
    rig: Rig, mode: str, name: str
) -> None:
    end, reason = ENDS[name]
    executor = await running(rig, mode)
    ((task_id, attempt),) = executor.running

    await end(rig, task_id)

    await eventually(lambda: executor.stopped == [(task_id, attempt, reason)])


@pytest.mark.parametrize("mode", MODES)
async def test_a_worker_is_told_that_its_attempt_has_timed_out(rig: Rig, mode: str) -> None:
    # Its own clock would not say so before the next attempt.
    executor = await running(rig, mode, start_to_close_ms=1_000, retry={"maximum_attempts": 1})
    ((task_id, attempt),) = executor.running

    await eventually(lambda: executor.stopped == [(task_id, attempt, StopReason.TIMED_OUT)])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("end", "reason"),
    [(Rig.cancel, StopReason.CANCELLED), (Rig.terminate, StopReason.TERMINATED)],
    ids=["cancelled", "terminated"],
)
async def test_a_stop_before_the_confirmation_has_its_right_reason(
    rig: Rig, mode: str, end: End, reason: StopReason
) -> None:
    _, executor = rig.connect(mode=mode, lease_ms=60_000)
    (task_id,) = await rig.enqueue()
    await executor.has_started(1)

    await end(rig, task_id)

    await eventually(lambda: executor.stopped == [(task_id, 1, reason)])


async def running(rig: Rig, mode: str, **options: Any) -> FakeExecutor:
    """Let a worker run one task, of which the server knows that it runs."""
    _, executor = rig.connect(mode=mode, lease_ms=LEASE_MS)
    (task_id,) = await rig.enqueue(**options)
    await rig.until(task_id, "RUNNING")
    return executor
