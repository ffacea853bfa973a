"""Runs a work batch until it is committed or lost: again, in parts, or command by command."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import structlog
from msgspec.structs import replace

from tenure.engine.batch import run as batch
from tenure.engine.batch import split
from tenure.engine.batch.memory import BatchMemory
from tenure.engine.batch.split import PartDeadline
from tenure.engine.claim.dispatch import Dispatch
from tenure.engine.claim.plan import ClaimPlan
from tenure.engine.command import AnyCommand
from tenure.engine.lane import Entry
from tenure.engine.task.command import ClaimTasks
from tenure.errors import InvalidArgument
from tenure.store.failure import (
    Blocked,
    Conflict,
    FenceLost,
    KeyTaken,
    Lost,
    Refused,
    RowsBusy,
    RuleBroken,
)
from tenure.store.table.task import TaskKey
from tenure.store.transaction import Store, Tx

log = structlog.get_logger("tenure.engine")
RUNS_MAX = 4
WorkEntry = Entry[AnyCommand]
Lose = Callable[[Sequence[Entry[Any]], Lost], None]
AfterCommit = Callable[[Sequence[WorkEntry], batch.Committed], Awaitable[None]]
Pause = Callable[[str], Awaitable[None]]


class BatchRunner:
    """Runs the batches of the work lane; ``lose`` answers the commands of a failed one."""

    def __init__(
        self,
        store: Store,
        memory: BatchMemory,
        dispatch: Dispatch,
        *,
        lose: Lose,
        after_commit: AfterCommit,
        pause: Pause | None,
    ) -> None:
        """Run on a store with the memory of earlier batches."""
        self._store = store
        self._memory = memory
        self._dispatch = dispatch
        self._lose = lose
        self._after_commit = after_commit
        self._pause = pause
        self._waiting_since_mono_ms = 0

    async def run(
        self, entries: Sequence[WorkEntry], plan: ClaimPlan, *, waiting_since_mono_ms: int
    ) -> None:
        """Run a batch; every future gets its answer. No command has waited for longer."""
        self._waiting_since_mono_ms = waiting_since_mono_ms
        await self._execute(entries, plan)

    async def _execute(
        self, entries: Sequence[WorkEntry], plan: ClaimPlan, deadline: PartDeadline | None = None
    ) -> None:
        """Run a batch; again after a conflict or a lost race, in parts after a refusal."""
        commands = [command for command, _ in entries]
        is_race_lost = False
        parents: frozenset[TaskKey] = frozenset()
        for number in range(RUNS_MAX):
            try:
                committed = await self._commit(
                    commands, plan, deadline, is_first=number == 0, parents=parents
                )
            except FenceLost as lost:
                self._memory.forget(lost.ids)
            except Blocked as blocked:
                await self._run_parts(entries, plan, deadline, blocked)
                return
            except (Conflict, KeyTaken) as conflict:
                # The next run loads what another server has stored meanwhile.
                log.warning("batch.conflict", size=len(entries), error=str(conflict))
                parents |= _busy(conflict)
                is_race_lost = isinstance(conflict, KeyTaken)
            except Refused:
                await self._divide(entries, plan)
                return
            except Lost as lost:
                self._lose(entries, lost)
                return
            except Exception:
                log.exception("batch.failed", size=len(entries))
                self._lose(entries, Lost("The batch failed.", reason="internal"))
                return
            else:
                await self._slow("after commit")
                await self._after_commit(entries, committed)
                return
        if is_race_lost:
            await self._divide(entries, plan)
        else:
            self._lose(entries, Lost("The batch had too many conflicts.", reason="conflict"))

    async def _commit(
        self,
        commands: list[AnyCommand],
        plan: ClaimPlan,
        deadline: PartDeadline | None,
        *,
        is_first: bool,
        parents: frozenset[TaskKey],
    ) -> batch.Committed:
        """Run a batch once, as one statement if possible."""
        since_ms = self._waiting_since_mono_ms if is_first else None
        context = self._memory.context(plan, since_ms, copies_rows=self._pause is not None)
        if parents:
            context = replace(context, parents=parents)
        if is_first and deadline is None:
            committed = await self._memory.single_writer.run(commands, context)
            if committed is not None:
                return committed

        async def body(tx: Tx) -> batch.Committed:
            if deadline is not None:
                await deadline.apply(tx)
            return await batch.run(tx, commands, context)

        return await self._store.transaction(body)

    async def _run_parts(
        self,
        entries: Sequence[WorkEntry],
        plan: ClaimPlan,
        deadline: PartDeadline | None,
        blocked: Blocked,
    ) -> None:
        """Find the commands that need the locked row; the others are not affected."""
        mono_ms = self._memory.clock.monotonic_ms()
        if deadline is None:
            log.warning("batch.blocked", size=len(entries), error=str(blocked))
            deadline = PartDeadline.from_now(mono_ms)
        others = [entry for entry in entries if type(entry[0]) is not ClaimTasks]
        parts = split.parts(others, plan) if mono_ms < deadline.ends_at_mono_ms else []
        if others and not parts:
            self._lose(others, Lost(str(blocked), reason="conflict"))
        # An offer that gets nothing now is served by the fallback poll.
        for some, some_plan in parts:
            await self._execute(some, some_plan, deadline)

    async def _divide(self, entries: Sequence[WorkEntry], plan: ClaimPlan) -> None:
        """Find the command that the database refuses; the others are not affected."""
        self._dispatch.plan_again(plan)
        others = [entry for entry in entries if type(entry[0]) is not ClaimTasks]
        if len(others) > 1:
            middle = len(others) // 2
            await self._execute(others[:middle], ClaimPlan())
            await self._execute(others[middle:], ClaimPlan())
        elif others:
            await self._run_alone(others[0])

    async def _run_alone(self, entry: WorkEntry) -> None:
        """Run a refused command once more, on rows that are read; a second failure is final.

        Only data that does not fit is the caller's mistake. A violated constraint is our bug, and
        the next request can win a race for a key.
        """
        command, future = entry
        context = self._memory.bare_context()
        for _ in range(RUNS_MAX):
            try:
                committed = await self._store.transaction(
                    lambda tx, context=context: batch.run(tx, [command], context)  # type: ignore[misc]  # the default binds this context
                )
            except Blocked as blocked:
                self._lose([entry], Lost(str(blocked), reason="conflict"))
                return
            except (Conflict, FenceLost, KeyTaken) as conflict:
                log.warning("batch.conflict", size=1, error=str(conflict))
                context = replace(context, parents=context.parents | _busy(conflict))
            except RuleBroken as broken:
                log.exception("command.constraint_violated", command=type(command).__name__)
                self._lose([entry], Lost(str(broken), reason="internal"))
                return
            except Refused as refused:
                log.warning("command.refused", command=type(command).__name__, error=str(refused))
                if not future.done():
                    message = "The database refused the request. Check its values."
                    future.set_exception(InvalidArgument(message, field="request"))
                return
            except Lost as lost:
                self._lose([entry], lost)
                return
            else:
                await self._after_commit([entry], committed)
                return
        self._lose([entry], Lost("The batch had too many conflicts.", reason="conflict"))

    async def _slow(self, point: str) -> None:
        if self._pause is not None:
            await self._pause(point)


def _busy(conflict: Exception) -> frozenset[TaskKey]:
    """Return the rows that the next run of a batch locks from its start."""
    return conflict.keys if isinstance(conflict, RowsBusy) else frozenset()
