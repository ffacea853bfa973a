"""Why a task is not running now: reads the facts about it and lets the core explain it.

Bounded reads in one snapshot, separate from the lanes: they delay no work. A run that waits for
tasks is explained with the first of them, and each of these in the same way.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from msgspec.structs import replace

from tenure.core import check
from tenure.core.endpoint.record import Endpoint
from tenure.core.explain import explanation as rules
from tenure.core.explain.fact import Awaited, Facts, Holder, TaskExplanation
from tenure.core.group.record import Group
from tenure.core.limits import (
    AHEAD_COUNTED_MAX,
    EXPLAINED_CHILDREN_MAX,
    EXPLAINED_DEPTH_MAX,
    EXPLAINED_MAX,
)
from tenure.core.queue import Queue
from tenure.core.run.wake_up import run_of
from tenure.core.task.attempt import CHARGES, Attempt, Charge
from tenure.core.task.record import ATTEMPT_HELD, Task, TaskKind, TaskState
from tenure.core.worker import health as health_rules
from tenure.engine.read import query
from tenure.engine.read.run import find_run, run_named
from tenure.errors import InvalidArgument, NotFound
from tenure.store.table import child as child_table
from tenure.store.table import endpoint as endpoint_table
from tenure.store.table import explain as reads
from tenure.store.table import group as group_table
from tenure.store.table import lease as lease_table
from tenure.store.table import listing
from tenure.store.table import queue as queue_table
from tenure.store.table import task as task_table
from tenure.store.table import worker as worker_table
from tenure.store.table.listing import Onlooker
from tenure.store.transaction import Store, Tx

# No worker holds them, and a worker is to run them.
_TO_BE_HANDED_OUT: Final = frozenset({TaskState.PENDING, TaskState.PAUSED})


async def explain_task(
    store: Store, *, namespace: str, task_id: str, deaf: Collection[str] = ()
) -> TaskExplanation:
    """Return why a task is not running now; ``deaf`` is the engine's own set."""
    key = (check.namespace(namespace), check.task_id(task_id, "taskId"))

    async def body(tx: Tx) -> Facts:
        task = await query.find_task(tx, key)
        return await _Reader(tx, Onlooker(await tx.now_ms(), deaf)).facts(task)

    return rules.explained(await query.scan(store, body))


async def explain_run(
    store: Store, *, namespace: str, run_id: str, deaf: Collection[str] = ()
) -> TaskExplanation:
    """Return why a run does not go on now; ``deaf`` is the engine's own set."""
    run_id = await run_named(store, namespace=namespace, run_id=run_id)
    key = (check.namespace(namespace), check.task_id(run_id, "runId"))

    async def body(tx: Tx) -> Facts:
        run, _ = await find_run(tx, key)
        return await _Reader(tx, Onlooker(await tx.now_ms(), deaf)).facts(run)

    return rules.explained(await query.scan(store, body))


class _Reader:
    """Reads the facts about a task and, of a run, about what it waits for."""

    def __init__(self, tx: Tx, onlooker: Onlooker) -> None:
        self._tx = tx
        self._onlooker = onlooker
        # What tasks of one type in one queue have in common.
        self._places: dict[tuple[str, str, TaskKind], Facts] = {}

    async def facts(self, task: Task, depth: int = 0) -> Facts:
        """Return the facts about a task; ``depth`` is how many runs wait for it here."""
        if task.state in _TO_BE_HANDED_OUT:
            return await self._unheld(task)
        holder = None
        if task.state in ATTEMPT_HELD and task.worker_id is not None:
            holder = await self._holder(task.worker_id)
        return Facts(
            task=task,
            now_ms=self._onlooker.now_ms,
            queue=Queue(task.namespace, task.queue),
            holder=holder,
            awaited=await self._awaited(task, depth),
        )

    # -- What keeps a task, which no worker holds, from a worker

    async def _unheld(self, task: Task) -> Facts:
        place = (task.queue, task.type, task.kind)
        if place not in self._places:
            self._places[place] = await self._read_place(task)
        facts = replace(self._places[place], task=task)
        if task.progress.loss_count:
            facts = replace(facts, losses=await self._losses(task))
        if task.line:
            ahead_count = await reads.count_ahead(self._tx, task, amount=AHEAD_COUNTED_MAX)
            facts = replace(facts, ahead_count=ahead_count)
        return facts

    async def _read_place(self, task: Task) -> Facts:
        tx = self._tx
        namespaces = await queue_table.read_namespaces(tx, [task.namespace])
        known = await listing.read_queues(tx, task.namespace, [task.queue])
        facts = Facts(
            task=task,
            now_ms=self._onlooker.now_ms,
            queue=known[0] if known else Queue(task.namespace, task.queue),
            is_disabled=any(each.is_disabled for each in namespaces),
            crews=await reads.list_crews(tx, task, self._onlooker),
        )
        if facts.queue.concurrency_max:
            group = (task.namespace, task.queue)
            held = await task_table.count_held(tx, [group])
            facts = replace(facts, held_count=held[group], held=await reads.list_held(tx, task))
        return facts if facts.crews else await self._with_near(facts)

    async def _with_endpoints(self, facts: Facts, found: list[Endpoint]) -> Facts:
        queue = facts.task.queue
        asked = [(each.namespace, queue, each.id) for each in found]
        held = await listing.count_worker_held(self._tx, asked)
        counts = {worker_id: each.count for worker_id, each in held.items()}
        return replace(facts, endpoints=tuple(found), endpoint_held=counts)

    async def _with_near(self, facts: Facts) -> Facts:
        """Read which workers come closest to a task that no worker can run."""
        if facts.task.kind is TaskKind.WORKFLOW:
            served_count = await reads.count_served(self._tx, facts.task)
            if served_count:
                return replace(facts, served_count=served_count)
        else:
            found = await endpoint_table.find_offering(self._tx, facts.task)
            if found:
                return await self._with_endpoints(facts, found)
        near = await reads.list_near(self._tx, facts.task)
        if any(each.queue == facts.task.queue for each in near):
            return replace(facts, near=near)
        last_ended = await reads.find_last_ended(self._tx, facts.task)
        return replace(facts, near=near, last_ended=last_ended)

    async def _losses(self, task: Task) -> tuple[Attempt, ...]:
        """Return the last attempts whose workers were lost."""
        numbers = range(max(1, task.attempt - EXPLAINED_MAX + 1), task.attempt + 1)
        keys = [(task.namespace, task.id, each) for each in numbers]
        ended = await task_table.load_ended(self._tx, keys)
        return tuple(each for each in ended if CHARGES[each.outcome] is Charge.INTERRUPTIONS)

    async def _holder(self, worker_id: str) -> Holder | None:
        onlooker = self._onlooker
        for worker in await worker_table.read_workers(self._tx, [worker_id]):
            for lease in await lease_table.read_leases(self._tx, [worker_id]):
                is_deaf = worker_id in onlooker.deaf
                health = health_rules.judge(lease, now_ms=onlooker.now_ms, is_deaf=is_deaf)
                return Holder(worker.id, worker.name, worker.status, health, lease.beat_at_ms)
            return Holder(worker.id, worker.name, worker.status)
        return None

    # -- What a run waits for

    async def _awaited(self, run: Task, depth: int) -> dict[str, Awaited]:
        """Return the first tasks that a run waits for, by the keys of their calls."""
        if run.kind is not TaskKind.WORKFLOW or run.state is not TaskState.WAITING:
            return {}
        if run_of(run).park is not None or depth >= EXPLAINED_DEPTH_MAX:
            return {}
        left = 1 if depth else EXPLAINED_CHILDREN_MAX
        groups = await self._groups(run)
        found: dict[str, Awaited] = {}
        for key, group, ids in await self._calls(run, groups, left):
            children = [await self._child(run, each) for each in ids[:left]]
            facts = [await self.facts(each, depth + 1) for each in children if each is not None]
            left -= len(facts)
            if key in found:
                facts = [*found[key].facts, *facts]
            found[key] = Awaited(tuple(facts), group)
        return found

    async def _calls(
        self, run: Task, groups: dict[str, Group], amount: int
    ) -> list[tuple[str, Group | None, list[str]]]:
        """Return calls that a run waits for: their key, their group, and their first tasks."""
        waits = run_of(run).waits
        if not waits:
            # Its worker did not say what it waits for: then it may be all that it has made.
            start = (run.namespace, run.id, child_table.LOWEST_ID)
            opened = await child_table.read_children(self._tx, [start], amount=amount)
            return [(each.place.key, None, [each.id]) for all_ in opened.values() for each in all_]
        calls: list[tuple[str, Group | None, list[str]]] = []
        for wait in waits:
            group = groups.get(wait.key) if wait.kind == "group" else None
            ids = [wait.detail] if wait.kind == "child" else []
            if group is not None and amount > 0:
                parent = (run.namespace, group.group_id)
                items = await child_table.find_children(self._tx, parent, amount=amount)
                ids = [id_ for _, id_ in items]
            calls.append((wait.key, group, ids))
            amount -= len(ids)
        return calls

    async def _groups(self, run: Task) -> dict[str, Group]:
        """Return the open groups of a run that waits for one, by the keys of their calls."""
        journal_id = None if run.link is None else run.link.journal_id
        if journal_id is None or not any(each.kind == "group" for each in run_of(run).waits):
            return {}
        found = await group_table.read_open_groups(self._tx, [journal_id])
        return {each.key: each for each in found}

    async def _child(self, run: Task, task_id: str) -> Task | None:
        """Return a task that a run has made; what its worker said may be anything."""
        try:
            task = await query.find_task(self._tx, (run.namespace, check.task_id(task_id)))
        except (InvalidArgument, NotFound):
            return None
        return task if task.place.run_id == run.id else None
