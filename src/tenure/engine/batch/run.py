"""A batch of commands as one transaction: load, decide, follow up, hand out, save.

Claims run after all other commands, so that they see what the batch enqueued or put back, and
before the save, so that a task that is enqueued and handed out at once is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from tenure.core.journal.numbering import JournalEnd
from tenure.core.limits import ENQUEUE_STORED_MS
from tenure.core.task import enqueue_window
from tenure.core.task.enqueue_window import NOBODY, EnqueueWindow
from tenure.core.task.record import Task
from tenure.core.worker.receiver import Receiver
from tenure.engine.batch.follow_up import follow_up
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.claim.hand_out import ClaimResult, hand_out
from tenure.engine.claim.plan import ClaimPlan
from tenure.engine.clock import Clock
from tenure.engine.command import AnyCommand
from tenure.engine.command_table import SPECS
from tenure.engine.settings import Settings
from tenure.engine.task.late_report import name_ended_workers
from tenure.errors import TenureError
from tenure.store.failure import Conflict
from tenure.store.table import task as task_table
from tenure.store.table.lease import LeaseRows
from tenure.store.table.lock_order import RowSets
from tenure.store.table.task import TaskKey
from tenure.store.transaction import Tx


class Context(msgspec.Struct, frozen=True):
    """What a batch needs in addition to its commands.

    Known namespaces exist and are enabled, as far as this server knows; others are read if a
    command names them. Namespaces that are only claimed from are checked against ``disabled``.
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
    # Workers as they are cached; without any, those that may be handed work are read.
    receivers: Sequence[Receiver] = ()
    # Where journals end, as far as it is remembered with the rows of their runs.
    journal_ends: Mapping[TaskKey, JournalEnd] = {}
    # Parents that an earlier run of the batch came to need, and could not lock then.
    parents: frozenset[TaskKey] = frozenset()


class Committed(msgspec.Struct, frozen=True):
    """What a batch did, for the time after its commit, and the store's time that it read."""

    answers: list[object]
    ws: WorkingSet
    claims: ClaimResult
    plan: ClaimPlan
    store_ahead_ms: int | None


class _Loaded(msgspec.Struct, frozen=True):
    """The data of a batch, and when it knew the time."""

    rows: RowSets
    at_mono_ms: int


async def run(tx: Tx, commands: list[AnyCommand], context: Context) -> Committed:
    """Run the phases of a batch. May run twice: it changes nothing outside itself."""
    loaded = await _load(tx, commands, context, context.cache)
    ws, answers = _decide(loaded.rows, commands, context)
    if ws.doubtful:
        # Something was refused or left unchanged on cached copies: read them, decide again.
        fresh = {key: task for key, task in context.cache.items() if key not in ws.doubtful}
        loaded = await _load(tx, commands, context, fresh, loaded.rows)
        ws, answers = _decide(loaded.rows, commands, context)
    if ws.refused_workers:
        await name_ended_workers(tx, ws, commands, answers)
    if ws.ended_children:
        await follow_up(tx, ws)
    claims = await hand_out(tx, ws, context.plan)
    if ws.ended_children:
        # Damaged ones, which nobody may get.
        await follow_up(tx, ws)
    await ws.rows.save(tx)
    await _check_births(tx, loaded, context.clock)
    ahead_ms = ws.now_ms - loaded.at_mono_ms
    return Committed(answers, ws, claims, context.plan, ahead_ms)


async def rehearse(
    tx: Tx,
    commands: list[AnyCommand],
    context: Context,
    prepare: Callable[[RowSets], None],
    see: Callable[[RowSets], None],
) -> tuple[WorkingSet, list[object]]:
    """Decide commands on the rows as they are, and save nothing.

    ``prepare`` may want more rows, and ``see`` is called with what was loaded.
    """
    rows = _gather(commands)
    prepare(rows)
    loaded = await _load_all(tx, rows, context, {}, None)
    see(loaded.rows)
    return _decide(loaded.rows, commands, context)


async def _load(
    tx: Tx,
    commands: list[AnyCommand],
    context: Context,
    cache: Mapping[TaskKey, Task],
    first: RowSets | None = None,
) -> _Loaded:
    """Load the rows that the commands need. Certainly recent new tasks are not looked up."""
    ahead_ms = context.store_ahead_ms
    if ahead_ms is None:
        return await _load_all(tx, _gather(commands), context, cache, first)
    guessed_now_ms = context.clock.monotonic_ms() + ahead_ms
    needs = _gather(commands, EnqueueWindow.at(guessed_now_ms))
    loaded = await _load_all(tx, needs, context, cache, first)
    is_exact = enqueue_window.is_exact(guessed_now_ms=guessed_now_ms, now_ms=needs.now_ms)
    if is_exact or not needs.tasks.has_young:
        return loaded
    return await _load_all(tx, _gather(commands), context, cache, needs)


def _gather(commands: list[AnyCommand], window: EnqueueWindow = NOBODY) -> RowSets:
    """Return the row sets of a batch with what its commands need."""
    rows = RowSets()
    rows.tasks.window = window
    for command in commands:
        SPECS[type(command)].needs(rows, command)
    return rows


async def _load_all(
    tx: Tx, rows: RowSets, context: Context, cache: Mapping[TaskKey, Task], first: RowSets | None
) -> _Loaded:
    """Load once more after ``first``, without rows that can be loaded only once."""
    rows.namespaces.know(context.known_namespaces, context.disabled)
    rows.tasks.cache = cache
    if context.parents:
        rows.tasks.parents |= context.parents
    if context.journal_ends:
        rows.journals.remembered = context.journal_ends
    if LeaseRows in rows.made:
        rows.leases.began_at_mono_ms = context.clock.monotonic_ms()
    if context.plan.hands:
        rows.receivers.wanted = context.plan.receivers
        rows.workers.counted = context.plan.counted
    for receiver in context.receivers:
        rows.receivers.take(receiver)
    if first is not None:
        rows.workers.judged_max = rows.tasks.due_max = 0
    await rows.load(tx)
    if first is not None:
        rows.keep_taken(first)
    return _Loaded(rows, context.clock.monotonic_ms())


async def _check_births(tx: Tx, loaded: _Loaded, clock: Clock) -> None:
    """Make sure that no new task existed before; else the batch runs again and finds it.

    A task that was not looked up has to be stored while its id is recent. A task that was looked up
    may have been stored and finished by another server since then; once our row exists, it cannot.
    """
    tasks = loaded.rows.tasks
    if tasks.has_young and clock.monotonic_ms() - loaded.at_mono_ms > ENQUEUE_STORED_MS:
        message = "New tasks were stored too late after their decision."
        raise Conflict(message)
    births = [key for key in tasks.births if key in tasks.new]
    if births:
        for task in await task_table.load_history(tx, births):
            if tasks.new[task.namespace, task.id].finished_at_ms is None:
                message = f"Task {task.id} was finished by another server meanwhile."
                raise Conflict(message)


def _decide(
    rows: RowSets, commands: list[AnyCommand], context: Context
) -> tuple[WorkingSet, list[object]]:
    """Decide every command in its order; only its own caller sees a refusal."""
    ws = WorkingSet(rows, context.clock, context.server_id, context.settings)
    answers: list[object] = []
    for command in commands:
        try:
            answers.append(SPECS[type(command)].handler(ws, command))
        except TenureError as error:
            answers.append(error)
    return ws, answers
