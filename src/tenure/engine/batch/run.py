"""A batch of commands as one transaction: load, decide, hand out, save.

Claims come after all other commands, so that they see what the batch enqueued or put back, and
before the save, so that a task that is enqueued and handed out at once is written once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tenure.core.limits import ENQUEUE_STORED_MS
from tenure.core.task import enqueue_window
from tenure.core.task.enqueue_window import NOBODY, EnqueueWindow
from tenure.core.task.record import TERMINAL, Task
from tenure.engine.batch.load import Rows, load
from tenure.engine.batch.row_needs import Needs
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.claim.plan import ClaimPlan, ClaimResult, hand_out
from tenure.engine.clock import Clock
from tenure.engine.command import AnyCommand
from tenure.engine.command_table import SPECS
from tenure.engine.settings import Settings
from tenure.errors import TenureError
from tenure.store.failure import Conflict
from tenure.store.table import access as access_table
from tenure.store.table import idempotency as idempotency_table
from tenure.store.table import lease as lease_table
from tenure.store.table import queue as queue_table
from tenure.store.table import task as task_table
from tenure.store.table import worker as worker_table
from tenure.store.table.task import TaskKey
from tenure.store.table.worker import Receiver
from tenure.store.transaction import Tx


class Context(msgspec.Struct, frozen=True):
    """What a batch needs besides its commands.

    Known namespaces exist and are enabled, as far as this server has heard; others are read if a
    command names them. Of those that are only claimed from, ``disabled`` is what is known.
    """

    clock: Clock
    server_id: str
    settings: Settings
    cache: Mapping[TaskKey, Task]
    known_namespaces: frozenset[str]
    plan: ClaimPlan
    # How far the store's time is ahead of our monotonic clock; None: look up every new task.
    store_ahead_ms: int | None = None
    disabled: frozenset[str] = frozenset()
    # Workers as they are remembered; without any, those that may be handed work are read.
    receivers: Sequence[Receiver] = ()


class Committed(msgspec.Struct, frozen=True):
    """What a batch did, for the time after its commit, and what it saw of the store's time."""

    answers: list[object]
    ws: WorkingSet
    claims: ClaimResult
    plan: ClaimPlan
    store_ahead_ms: int | None


class _Loaded(msgspec.Struct, frozen=True):
    """What a batch works on, what it asked for, and when it knew the time."""

    rows: Rows
    needs: Needs
    at_mono_ms: int


async def run(tx: Tx, commands: list[AnyCommand], context: Context) -> Committed:
    """Run the phases of a batch. May run twice: it changes nothing outside itself."""
    loaded = await _load(tx, commands, context, context.cache)
    ws, answers = _decide(loaded.rows, commands, context)
    if ws.doubtful:
        # Something was refused or left alone on remembered copies: read them, decide again.
        fresh = {key: task for key, task in context.cache.items() if key not in ws.doubtful}
        loaded = await _load(tx, commands, context, fresh, loaded.rows)
        ws, answers = _decide(loaded.rows, commands, context)
    await _follow_up(tx, ws)
    claims = await hand_out(tx, ws, context.plan)
    await _save(tx, ws)
    await _check_births(tx, ws, loaded, context.clock)
    ahead_ms = loaded.rows.now_ms - loaded.at_mono_ms
    return Committed(answers, ws, claims, context.plan, ahead_ms)


async def _load(
    tx: Tx,
    commands: list[AnyCommand],
    context: Context,
    cache: Mapping[TaskKey, Task],
    first: Rows | None = None,
) -> _Loaded:
    """Load what the commands need. New tasks that seem young are not looked up, if they are."""
    ahead_ms = context.store_ahead_ms
    if ahead_ms is None:
        return await _load_all(tx, _gather(commands), context, cache, first)
    guessed_now_ms = context.clock.monotonic_ms() + ahead_ms
    needs = _gather(commands, EnqueueWindow.at(guessed_now_ms))
    loaded = await _load_all(tx, needs, context, cache, first)
    now_ms = loaded.rows.now_ms
    if enqueue_window.is_exact(guessed_now_ms=guessed_now_ms, now_ms=now_ms) or not needs.has_young:
        return loaded
    return await _load_all(tx, _gather(commands), context, cache, loaded.rows)


def _gather(commands: list[AnyCommand], window: EnqueueWindow = NOBODY) -> Needs:
    """Return what a batch needs: the union over its commands."""
    needs = Needs(window=window)
    for command in commands:
        SPECS[type(command)].needs(needs, command)
    needs.tasks |= needs.births
    return needs


async def _load_all(
    tx: Tx,
    needs: Needs,
    context: Context,
    cache: Mapping[TaskKey, Task],
    first: Rows | None,
) -> _Loaded:
    """Load once more after ``first``, without what can be had only once."""
    needs.namespaces -= context.known_namespaces
    needs.namespaces |= needs.administered
    if first is not None:
        needs.judge = needs.due = None
    receivers = context.plan.receivers
    mono_ms = context.clock.monotonic_ms()
    rows = await load(
        tx,
        needs,
        cache=cache,
        receivers=receivers,
        mono_ms=mono_ms,
        known=context.receivers,
    )
    if context.disabled:
        # What was read just now is newer than what this server has heard.
        rows.disabled |= context.disabled - rows.namespaces
    if first is not None:
        _keep_taken(first, rows)
    return _Loaded(rows, needs, context.clock.monotonic_ms())


async def _check_births(tx: Tx, ws: WorkingSet, loaded: _Loaded, clock: Clock) -> None:
    """Make sure that no new task was there before; else the batch runs again and finds it.

    What was not looked up has to be stored before it is old. What was looked up may have been
    stored and finished by another server since then; now that our row is there, no more.
    """
    needs = loaded.needs
    if needs.has_young and clock.monotonic_ms() - loaded.at_mono_ms > ENQUEUE_STORED_MS:
        message = "New tasks were stored too long after they were decided."
        raise Conflict(message)
    births = [key for key in needs.births if key in ws.new_tasks]
    if births:
        for task in await task_table.load_history(tx, births):
            if ws.new_tasks[task.namespace, task.id].finished_at_ms is None:
                message = f"Task {task.id} was finished by another server meanwhile."
                raise Conflict(message)


def _keep_taken(first: Rows, again: Rows) -> None:
    """Keep what the first load took by a write or a lock that cannot be had a second time."""
    again.judged = first.judged
    again.due = first.due
    for key in first.due:
        again.tasks[key] = first.tasks[key]
        again.cached.discard(key)
    for worker_id in first.judged:
        again.workers[worker_id] = first.workers[worker_id]


def _decide(
    rows: Rows,
    commands: list[AnyCommand],
    context: Context,
) -> tuple[WorkingSet, list[object]]:
    """Decide every command in its order; a refusal is its own caller's alone."""
    rows.namespaces |= context.known_namespaces
    ws = WorkingSet(rows, context.clock, context.server_id, context.settings)
    answers: list[object] = []
    for command in commands:
        try:
            answers.append(SPECS[type(command)].handler(ws, command))
        except TenureError as error:
            answers.append(error)
    return ws, answers


async def _follow_up(tx: Tx, ws: WorkingSet) -> None:
    """Decide events for other tasks: at once where the row is here, else after one more load.

    A wake-up never finishes its task, so no follow-up causes another.
    """
    if not ws.follow_ups:
        return
    missing = {(each.namespace, each.task_id) for each in ws.follow_ups} - ws.tasks.keys()
    for task in await task_table.load_tasks(tx, missing):
        ws.tasks[task.namespace, task.id] = task
    for each in list(ws.follow_ups):
        key = (each.namespace, each.task_id)
        if key in ws.tasks and ws.tasks[key].state not in TERMINAL:
            ws.apply(key, each.event)


async def _save(tx: Tx, ws: WorkingSet) -> None:
    """Phase 4: one statement per table, every write of a live row fenced by its version."""
    await _save_workers(tx, ws)
    if ws.old_keys:
        await idempotency_table.delete_keys(tx, ws.old_keys)
    if ws.new_keys:
        await idempotency_table.insert_keys(tx, list(ws.new_keys.values()))
    finished, changed = _split(ws.changed_tasks)
    if finished:
        await task_table.finish_tasks(tx, finished)
    if changed:
        await task_table.update_tasks(tx, changed)
    born_finished, born = _split(ws.new_tasks)
    if born:
        await task_table.insert_tasks(tx, born)
    if born_finished:
        await task_table.insert_finished(tx, born_finished)
    if ws.ended:
        await task_table.insert_attempts(tx, ws.ended)
    if ws.changed_queues:
        await queue_table.save_queues(tx, list(ws.changed_queues.values()))
    if ws.audit:
        await _save_administered(tx, ws)


async def _save_administered(tx: Tx, ws: WorkingSet) -> None:
    """Save what was administered; the version tells other servers if who may call has changed."""
    await access_table.insert_audit(tx, ws.audit)
    if ws.new_namespaces:
        await tx.each("insert_namespaces", list(ws.new_namespaces.items()))
    if ws.changed_namespaces:
        await access_table.set_namespaces(tx, ws.changed_namespaces.values())
    if ws.new_api_keys:
        await access_table.insert_keys(tx, ws.new_api_keys)
    if ws.revoked_api_keys:
        await access_table.revoke_keys(tx, ws.revoked_api_keys)
    if ws.changed_namespaces or ws.new_api_keys or ws.revoked_api_keys:
        ws.access_version = await access_table.raise_version(tx)


def _split(tasks: Mapping[TaskKey, Task]) -> tuple[list[Task], list[Task]]:
    """Split tasks into finished and live ones."""
    finished: list[Task] = []
    live: list[Task] = []
    for task in tasks.values():
        (finished if task.finished_at_ms is not None else live).append(task)
    return finished, live


async def _save_workers(tx: Tx, ws: WorkingSet) -> None:
    if ws.changed_workers:
        await worker_table.update_workers(tx, list(ws.changed_workers.values()))
    if ws.new_workers:
        await worker_table.insert_workers(tx, list(ws.new_workers.values()))
    if ws.explained_ends:
        await worker_table.mark_ends_explained(tx, ws.explained_ends)
    await _save_leases(tx, ws)


async def _save_leases(tx: Tx, ws: WorkingSet) -> None:
    if ws.kept_leases:
        await lease_table.keep_leases(tx, ws.kept_leases)
    if ws.forgotten_leases:
        await lease_table.drop_ended_leases(tx, ws.forgotten_leases)
    if ws.dropped_leases:
        await lease_table.drop_leases(tx, ws.dropped_leases)
    if ws.new_leases:
        await lease_table.insert_leases(tx, list(ws.new_leases.values()))
    if ws.suspected_leases:
        await lease_table.suspect_leases(tx, list(ws.suspected_leases.values()))
    if ws.resumed_leases:
        await lease_table.resume_leases(tx, list(ws.resumed_leases.values()))
    if ws.failed_leases:
        await lease_table.fail_leases(tx, ws.failed_leases)
