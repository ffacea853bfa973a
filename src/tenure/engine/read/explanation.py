"""Why a task is not running now: reads the facts about it and lets the core explain it.

A few bounded reads in one snapshot, separate from the lanes: they delay no work.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec
from msgspec.structs import replace

from tenure.core import check
from tenure.core.explain import explanation as rules
from tenure.core.explain.fact import Facts, Holder, WaitingReason
from tenure.core.limits import AHEAD_COUNTED_MAX, EXPLAINED_MAX
from tenure.core.queue import Queue
from tenure.core.task.attempt import CHARGES, Attempt, Charge
from tenure.core.task.record import ATTEMPT_HELD, Task, TaskState
from tenure.core.worker import health as health_rules
from tenure.engine.read import query
from tenure.store.table import explain as reads
from tenure.store.table import lease as lease_table
from tenure.store.table import listing
from tenure.store.table import queue as queue_table
from tenure.store.table import task as task_table
from tenure.store.table import worker as worker_table
from tenure.store.table.listing import Onlooker
from tenure.store.transaction import Store, Tx

# No worker holds them, and a worker is to run them.
_TO_BE_HANDED_OUT: Final = frozenset({TaskState.PENDING, TaskState.PAUSED})


class TaskExplanation(msgspec.Struct, frozen=True):
    """A task's state and the reasons why it is not running, the one that counts now first."""

    task_id: str
    state: TaskState
    reasons: tuple[WaitingReason, ...]

    @property
    def text(self) -> str:
        """Return the reasons as one text for people."""
        return rules.text(self.reasons)


async def explain_task(
    store: Store, *, namespace: str, task_id: str, deaf: Collection[str] = ()
) -> TaskExplanation:
    """Return why a task is not running now; ``deaf`` is the engine's own set."""
    key = (check.namespace(namespace), check.task_id(task_id, "taskId"))

    async def body(tx: Tx) -> Facts:
        task = await query.find_task(tx, key)
        now_ms = await tx.now_ms()
        if task.state in _TO_BE_HANDED_OUT:
            return await _unheld_facts(tx, task, Onlooker(now_ms, deaf))
        holder = None
        if task.state in ATTEMPT_HELD and task.worker_id is not None:
            holder = await _holder(tx, task.worker_id, Onlooker(now_ms, deaf))
        return Facts(
            task=task, now_ms=now_ms, queue=Queue(task.namespace, task.queue), holder=holder
        )

    facts = await query.scan(store, body)
    return TaskExplanation(facts.task.id, facts.task.state, rules.explain(facts))


async def _unheld_facts(tx: Tx, task: Task, onlooker: Onlooker) -> Facts:
    """Read what keeps a task, which no worker holds, from a worker."""
    namespaces = await queue_table.read_namespaces(tx, [task.namespace])
    known = await listing.read_queues(tx, task.namespace, [task.queue])
    facts = Facts(
        task=task,
        now_ms=onlooker.now_ms,
        queue=known[0] if known else Queue(task.namespace, task.queue),
        is_disabled=any(each.is_disabled for each in namespaces),
        crews=await reads.list_crews(tx, task, onlooker),
    )
    if facts.queue.concurrency_max:
        group = (task.namespace, task.queue)
        held = await task_table.count_held(tx, [group])
        facts = replace(facts, held_count=held[group], held=await reads.list_held(tx, task))
    if not facts.crews:
        facts = await _with_near(tx, facts)
    if task.progress.loss_count:
        facts = replace(facts, losses=await _losses(tx, task))
    if task.line:
        ahead_count = await reads.count_ahead(tx, task, amount=AHEAD_COUNTED_MAX)
        facts = replace(facts, ahead_count=ahead_count)
    return facts


async def _with_near(tx: Tx, facts: Facts) -> Facts:
    """Read which workers come closest to a task that no worker can run."""
    near = await reads.list_near(tx, facts.task)
    if any(each.queue == facts.task.queue for each in near):
        return replace(facts, near=near)
    return replace(facts, near=near, last_ended=await reads.find_last_ended(tx, facts.task))


async def _losses(tx: Tx, task: Task) -> tuple[Attempt, ...]:
    """Return the last attempts whose workers were lost."""
    numbers = range(max(1, task.attempt - EXPLAINED_MAX + 1), task.attempt + 1)
    ended = await task_table.load_ended(tx, [(task.namespace, task.id, each) for each in numbers])
    return tuple(each for each in ended if CHARGES[each.outcome] is Charge.INTERRUPTIONS)


async def _holder(tx: Tx, worker_id: str, onlooker: Onlooker) -> Holder | None:
    for worker in await worker_table.read_workers(tx, [worker_id]):
        for lease in await lease_table.read_leases(tx, [worker_id]):
            is_deaf = worker_id in onlooker.deaf
            health = health_rules.judge(lease, now_ms=onlooker.now_ms, is_deaf=is_deaf)
            return Holder(worker.id, worker.name, worker.status, health, lease.beat_at_ms)
        return Holder(worker.id, worker.name, worker.status)
    return None
