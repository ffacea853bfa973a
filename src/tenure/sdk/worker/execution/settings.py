"""How a worker executes."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from tenure.sdk.workflow.guard import Guard


class ExecutionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker executes.

    ``max_processes`` 0 is one per processor. When tasks are handed back, each activity
    has its own cancel grace to clean up, but at most ``hand_back_grace_ms``. Up to ``warm_runs``
    runs that wait stay in memory; ``guard`` is what happens to a body that blocks. ``can_linger``
    says whether runs that wait for a child may keep their slots for a moment.
    """

    namespace: str = "default"
    max_concurrent: int = 100
    max_processes: int = 0
    hand_back_grace_ms: int = 5_000
    warm_runs: int = 1_000
    guard: Guard = "refuse"
    can_linger: bool = True
    clock: Callable[[], float] = time.monotonic
    # Of a server that a test has in this process; others are known by what they say.
    server_clock: Callable[[], int] | None = None
