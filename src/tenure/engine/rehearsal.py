"""What a command would do: decided by the same rules on the same rows, and never written.

The transaction is rolled back, so nobody sees anything of it, and no effect is performed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from tenure.core.limits import REHEARSED_MAX
from tenure.core.task.record import TERMINAL, Task, TaskState
from tenure.engine.access.command import SetQueue
from tenure.engine.batch import run as batch
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.claim.plan import ClaimPlan
from tenure.engine.command import AnyCommand
from tenure.engine.command_table import SPECS
from tenure.engine.read import queue as queue_read
from tenure.engine.task import command as task_command
from tenure.engine.worker import command as c
from tenure.errors import TenureError
from tenure.store.table.lock_order import RowSets
from tenure.store.transaction import LaneName, Tx

if TYPE_CHECKING:
    from tenure.engine.engine import Engine

TaskChange = (
    task_command.CancelTask
    | task_command.PauseTask
    | task_command.ResumeTask
    | task_command.TerminateTask
)


class Consequence(msgspec.Struct, frozen=True):
    """One thing that would happen, how often, and how to say it."""

    code: str
    count: int
    message: str


class _Rehearsed(Exception):
    """Rolls a rehearsal back, with what it has found."""

    def __init__(self, ws: WorkingSet, answers: list[object]) -> None:
        self.ws = ws
        self.answers = answers


def _nothing(rows: RowSets) -> None:
    """Want no more rows."""
    del rows


async def rehearse(
    engine: Engine,
    commands: Sequence[AnyCommand],
    prepare: Callable[[RowSets], None] = _nothing,
    see: Callable[[RowSets], None] = _nothing,
) -> WorkingSet:
    """Return the rows as commands would leave them; a refusal of the first is raised."""
    for command in commands:
        SPECS[type(command)].check(command)
    context = engine.batch_context(ClaimPlan())

    async def body(tx: Tx) -> None:
        raise _Rehearsed(*await batch.rehearse(tx, list(commands), context, prepare, see))

    try:
        await engine.store.transaction(body, LaneName.SERVICE)
    except _Rehearsed as rehearsed:
        first = rehearsed.answers[0]
        if isinstance(first, TenureError):
            raise first from None
        return rehearsed.ws
    message = "A rehearsal always ends with what it has found."
    raise AssertionError(message)


async def of_drain(engine: Engine, command: c.DrainWorker) -> tuple[Consequence, ...]:
    """Return what a drain of a worker would do."""

    def prepare(rows: RowSets) -> None:
        rows.tasks.held_of[command.worker_id] = REHEARSED_MAX

    ws = await rehearse(engine, [command], prepare)
    if command.worker_id not in ws.workers.changed:
        return (Consequence("nothing", 0, "The worker is draining already."),)
    held = [ws.tasks[key] for key in ws.tasks.held.get(command.worker_id, [])]
    return (
        Consequence("worker_draining", 1, "The worker gets no more tasks."),
        *_finishing(len(held), command.deadline_ms),
    )


def _finishing(held_count: int, deadline_ms: int) -> tuple[Consequence, ...]:
    if not held_count:
        return (Consequence("may_stop", 1, "It holds nothing, and may be stopped then."),)
    seconds = deadline_ms // 1000
    message = f"{held_count} held: finish where they are; after {seconds} s the rest goes back."
    return (Consequence("held_finish", held_count, message),)


def of_drains(workers: Sequence[tuple[str, int]], deadline_ms: int) -> tuple[Consequence, ...]:
    """Return what a drain of several workers, with what each holds, would do."""
    count = len(workers)
    if not count:
        return (Consequence("nothing", 0, "No active worker matches."),)
    held_count = sum(held for _, held in workers)
    return (
        Consequence("worker_draining", count, f"{count} workers get no more tasks."),
        *_finishing(held_count, deadline_ms),
    )


async def of_evict(engine: Engine, command: c.EvictWorker) -> tuple[Consequence, ...]:
    """Return what an eviction would do, with the release of what the worker holds."""
    worker_id = command.worker_id
    release = c.ReleaseHeldTasks(worker_id=worker_id, amount=REHEARSED_MAX)

    def prepare(rows: RowSets) -> None:
        rows.leases.wanted.add(worker_id)
        rows.tasks.held_of[worker_id] = REHEARSED_MAX

    def see(rows: RowSets) -> None:
        lease = rows.leases.get(worker_id)
        if lease is not None:
            # As the eviction would have stored it.
            rows.leases.ended[worker_id] = (lease.lease_until_ms, lease.lease_ms)

    ws = await rehearse(engine, [command, release], prepare, see)
    if worker_id not in ws.workers.changed:
        return (Consequence("nothing", 0, "The worker is evicted already."),)
    keys = ws.tasks.held.get(worker_id, [])
    after = [ws.tasks[key] for key in keys]
    found = [Consequence("worker_offline", 1, "The worker is offline at once.")]
    counts = Counter(_end_of(task, worker_id) for task in after)
    for code, text in _EVICTED.items():
        if counts[code]:
            found.append(Consequence(code, counts[code], f"{counts[code]} {text}"))
    return tuple(found)


_EVICTED: Final = {
    "tasks_again": "held: start again on other workers, and may run twice for a short time.",
    "tasks_failed": "held: fail, because they have lost too many workers.",
    "tasks_cancelled": "held: are cancelled.",
    "exclusive_kept": "held exclusively: stay with it until its lease would have ended.",
}


def _end_of(task: Task, worker_id: str) -> str:
    if task.worker_id == worker_id and task.state not in TERMINAL:
        return "exclusive_kept"
    if task.state is TaskState.FAILED:
        return "tasks_failed"
    return "tasks_cancelled" if task.state is TaskState.CANCELLED else "tasks_again"


async def of_task_change(engine: Engine, command: TaskChange) -> tuple[Consequence, ...]:
    """Return what a change of a task would do."""
    key = (command.namespace, command.task_id)
    ws = await rehearse(engine, [command])
    before, after = ws.tasks.loaded.get(key), ws.tasks.get(key)
    if after is None or after == before or key not in ws.tasks.changed:
        return (Consequence("nothing", 0, "The task stays as it is."),)
    found = [Consequence(f"task_{after.state}", 1, _text(before, after))]
    if ws.closings.new:
        text = "Its live children are closed by their policies."
        found.append(Consequence("children_closed", len(ws.closings.new), text))
    if after.worker_id is not None:
        text = f"Worker {after.worker_id} holds its attempt {after.attempt}."
        found.append(Consequence("attempt_held", 1, text))
    return tuple(found)


def _text(before: Task | None, after: Task) -> str:
    was = "" if before is None else f" It is {before.state} now."
    if before is not None and before.state is after.state:
        return f"The task stays {after.state} until its attempt ends."
    return f"The task becomes {after.state}.{was}"


async def of_queue(engine: Engine, command: SetQueue) -> tuple[Consequence, ...]:
    """Return what new brakes of a queue would do."""
    ws = await rehearse(engine, [command])
    key = (command.namespace, command.name)
    old, new = ws.queues.loaded.get(key), ws.queues[key]
    report = await queue_read.get_queue(engine, namespace=command.namespace, name=command.name)
    pending = report.depths.get(TaskState.PENDING, 0)
    held = sum(report.depths.get(state, 0) for state in (TaskState.DISPATCHED, TaskState.RUNNING))
    was_paused = old is not None and old.is_paused
    found = []
    if new.is_paused and not was_paused:
        found.append(Consequence("tasks_wait", pending, f"{pending} pending: wait."))
        found.append(Consequence("held_finish", held, f"{held} held: go on."))
    if was_paused and not new.is_paused:
        text = f"{pending} pending: are handed out again."
        found.append(Consequence("tasks_start", pending, text))
    over = held - new.concurrency_max
    if new.concurrency_max and over > 0 and new != old:
        text = f"{over} more than the limit are held: they go on, and nothing starts until then."
        found.append(Consequence("over_limit", over, text))
    if not found:
        found.append(Consequence("nothing", 0, "Nothing waits and nothing runs differently."))
    return tuple(found)
