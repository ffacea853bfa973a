"""The crash guard: finds the task that crashed its worker among those that were lost with it.

From its second loss in a row a task is a suspect. The crashing task is found by splitting: suspects
come back in groups of at most half the size of the lost group, and only losses in a group of one
count. So such a task is found in a few rounds, and a suspect that succeeds is cleared.

A loss counts only if chance does not explain it. The control group are the other workers of the
queue: when they are lost so often, without this task, that its worker would probably have been lost
anyway, the loss does not count.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from tenure.core.limits import (
    CONTROL_DEATHS_MAX,
    CONTROL_WINDOW_MS,
    GUARD_BACKOFF_MAX_MS,
    GUARD_BACKOFF_MIN_MS,
    LOSSES_BEFORE_GUARD,
    LOSSES_THAT_EXPLAIN,
    POISON_LOSSES_MAX,
)
from tenure.core.task.record import AttemptProgress, Task


class ControlGroup(msgspec.Struct, frozen=True, gc=False):
    """The other workers of a queue: unexplained losses within the window, and live workers."""

    dead_count: int = 0
    live_count: int = 0


class Loss(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How a worker was lost: when, with how many attempts, how many of them of suspects."""

    at_ms: int = 0
    attempt_count: int = 1
    suspect_count: int = 1
    control: ControlGroup = ControlGroup()


class Suspects(msgspec.Struct, frozen=True, gc=False):
    """The suspects that a worker holds: how many, and the smallest size of their groups."""

    count: int = 0
    group_max: int = 0

    def may_take(self, progress: AttemptProgress) -> bool:
        """Return whether one more suspect fits its group and those of the others."""
        most = group_size(progress)
        if self.count:
            most = min(most, self.group_max)
        return self.count < most

    def with_one_more(self, progress: AttemptProgress) -> Suspects:
        """Return the suspects of the worker with one more."""
        size = group_size(progress)
        return Suspects(self.count + 1, min(size, self.group_max) if self.count else size)


def is_suspect(progress: AttemptProgress) -> bool:
    """Return whether a task is suspected of crashing its workers."""
    return progress.loss_count >= LOSSES_BEFORE_GUARD


def group_size(progress: AttemptProgress) -> int:
    """Return with how many suspects at most, including itself, a suspect shares a worker."""
    return max(1, progress.group_max)


def is_control_needed(held: Sequence[Task]) -> bool:
    """Return whether a loss of these attempts may count against one of them."""
    return len(held) == 1 or any(task.progress.is_sole for task in held)


def loss_of(held: Sequence[Task], *, at_ms: int, control: ControlGroup) -> Loss:
    """Return how a worker was lost that held these attempts."""
    return Loss(
        at_ms=at_ms,
        attempt_count=len(held),
        suspect_count=sum(task.is_guarded for task in held),
        control=control,
    )


def is_poisoned(progress: AttemptProgress) -> bool:
    """Return whether enough losses count against the task."""
    return progress.counted_count >= POISON_LOSSES_MAX


def explains_death(progress: AttemptProgress) -> bool:
    """Return whether a suspect was lost alone often enough to explain the loss of its worker."""
    return progress.alone_count >= LOSSES_THAT_EXPLAIN


def backoff_ms(progress: AttemptProgress) -> int:
    """Return how long the task waits after a loss; before it is a suspect, not at all."""
    if not is_suspect(progress):
        return 0
    doublings = min(progress.loss_count - LOSSES_BEFORE_GUARD, 16)
    return min(GUARD_BACKOFF_MIN_MS << doublings, GUARD_BACKOFF_MAX_MS)


def after_loss(progress: AttemptProgress, loss: Loss, *, held_ms: int) -> AttemptProgress:
    """Return the progress after one more loss; ``held_ms`` is how long the worker had the task."""
    is_alone = progress.is_sole or loss.attempt_count == 1
    recent = tuple(at for at in progress.lost_at_ms if at > loss.at_ms - CONTROL_WINDOW_MS)
    counts = is_alone and not _is_chance(loss.control, own_count=len(recent), held_ms=held_ms)
    lost = replace(
        progress,
        loss_count=progress.loss_count + 1,
        alone_count=progress.alone_count + is_alone,
        counted_count=progress.counted_count + counts,
        group_max=_next_group(progress, loss),
    )
    # A loss that this task explains is not in the control group, so it is not subtracted there.
    recent = recent if explains_death(lost) else (*recent, loss.at_ms)
    return replace(lost, lost_at_ms=recent)


def cleared(progress: AttemptProgress) -> AttemptProgress:
    """Return the progress of a task that is no longer suspected."""
    if not progress.loss_count:
        return progress
    return replace(
        progress, loss_count=0, alone_count=0, counted_count=0, group_max=0, lost_at_ms=()
    )


def _next_group(progress: AttemptProgress, loss: Loss) -> int:
    if is_suspect(progress):
        return max(1, min(group_size(progress), loss.suspect_count) // 2)
    return max(1, loss.attempt_count // 2)


def _is_chance(control: ControlGroup, *, own_count: int, held_ms: int) -> bool:
    """Return whether other workers are lost so often that this loss says nothing about the task.

    Workers that were lost while they held this task are not counted.
    """
    dead_count = max(0, control.dead_count - own_count)
    # The dead worker counts as one that lived until then.
    watched_ms = (control.live_count + 1) * CONTROL_WINDOW_MS
    return dead_count * held_ms >= CONTROL_DEATHS_MAX * watched_ms
