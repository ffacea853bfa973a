"""Deliberate bugs in what runs do: in the core, the engine, the store and the body itself."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from tenure.core.journal import numbering
from tenure.core.run import cancel, wake_up
from tenure.core.task import attempt_failure
from tenure.core.task import decide as task_rules
from tenure.core.task.effect import Decision
from tenure.core.task.event import EntryAppended
from tenure.core.task.record import TaskKind, TaskState
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.claim import hand_out
from tenure.engine.run import handler as run_handler
from tenure.engine.task import handler as task_handler
from tenure.engine.task.command import FinishKind
from tenure.sdk.workflow.run import Run
from tenure.store.sqlite.store import SqliteTx
from tenure.store.table import journal as journal_table
from tenure.store.table.journal import JournalRows
from tests.sim.faults import CALM, Faults
from tests.sim.mutant import Function, Mutant

# Late reports meet the memory of a server to which the worker does not speak any more.
MOVED: Final = Faults(
    session_break_rate=3.0,
    move_rate=1.0,
    slow_share=0.4,
    slow_ms=2_000,
    reply_lost=0.1,
    forget_share=0.3,
    worker_stop_rate=0.3,
)
REPEATING: Final = Faults(
    request_lost=0.05, reply_lost=0.2, duplicated=0.3, slow_share=0.25, slow_ms=900
)
BUNCHED: Final = Faults(bunch_ms=400.0)
LOSING: Final = Faults(worker_crash_rate=1.0, drain_rate=0.5, forget_share=0.1, slow_share=0.1)

# -- Positions and fences -------------------------------------------------------------------------


def _stale_position(_original: Function) -> Function:
    """Take it for written when the position was taken by somebody else."""

    async def changed(tx: Any, entries: Any) -> None:
        rows = [journal_table.inserted(each, holder) for each, holder in entries]
        await tx.fenced("insert_entries", rows)

    return changed


def _plain(row: Any) -> tuple[Any, ...]:
    """Return the parameters of ``append_entries``, which has no fence."""
    _, _, _, attempt, day, pos, at_ms, total_bytes, no, *rest = row
    return (day, pos, at_ms, total_bytes, attempt, no, *rest)


def _fenced_by(column: str, part: int) -> Function:
    """Let the fence of an entry look at nothing but one column."""

    def change(original: Function) -> Function:
        async def changed(self: Any, name: str, rows: Any) -> int:
            if name != "insert_entries":
                return int(await original(self, name, rows))
            sql = f"SELECT {column} FROM tasks WHERE namespace = ? AND id = ?"
            found = 0
            for row in rows:
                held = self._connection.execute(sql, row[:2]).fetchone()
                if held is not None and held[0] == row[part]:
                    found += int(await original(self, "append_entries", [_plain(row)]))
            return found

        return changed

    return change


def _repeat_appended(original: Function) -> Function:
    def changed(ws: Any, key: Any, item: Any, worker_id: str) -> Any:
        last_no = ws.journals.ends[key].last_no_of(item.attempt)
        if item.first_no <= last_no:
            item = replace(item, first_no=last_no + 1)
        return original(ws, key, item, worker_id)

    return changed


def _journal_kept(_original: Function) -> Function:
    return lambda _self, _key, _journal_id: None


# -- Waking up ------------------------------------------------------------------------------------


def _yield_unchecked(original: Function) -> Function:
    def changed(*args: Any) -> Any:
        event = original(*args)
        return replace(event, journal_end=event.wish.seen)

    return changed


def _news_unheard(_original: Function) -> Function:
    return lambda task, _event, _now_ms: Decision(task)


def _parked_woken(original: Function) -> Function:
    def changed(task: Any, event: Any, now_ms: int) -> Any:
        run = wake_up.run_of(task)
        if task.state is TaskState.WAITING and run.park is not None:
            task = wake_up.with_run(task, replace(run, park=None))
        return original(task, event, now_ms)

    return changed


def _timer_twice(original: Function) -> Function:
    def changed(task: Any, now_ms: int) -> Any:
        decision = original(task, now_ms)
        return replace(decision, entries=decision.entries * 2)

    return changed


def _timer_early(_original: Function) -> Function:
    return lambda _entries, _now_ms: None


# -- Cancel, signals, pages -----------------------------------------------------------------------


def _cancel_lost(original: Function) -> Function:
    return lambda *args: replace(original(*args), entries=())


def _clean_up_skipped(original: Function) -> Function:
    def changed(task: Any, *rest: Any) -> Any:
        is_run = task.kind is TaskKind.WORKFLOW and task.is_cancel_requested
        if is_run:
            spec = replace(task.spec, kind=TaskKind.ACTIVITY)
            return original(replace(task, spec=spec), *rest)
        return original(task, *rest)

    return changed


def _signal_lost(original: Function) -> Function:
    def changed(self: Any, key: Any, entries: Any) -> None:
        if self.tasks[key].state is not TaskState.PENDING:
            original(self, key, entries)

    return changed


def _page_without_news(original: Function) -> Function:
    async def changed(tx: Any, ws: Any, assigned: Any) -> Any:
        found = []
        for task, offer_id in await original(tx, ws, assigned):
            given = task
            if task.link is not None and task.link.page is not None:
                page = replace(task.link.page, entries=task.link.page.entries[1:])
                given = replace(task, link=replace(task.link, page=page))
            found.append((given, offer_id))
        return found

    return changed


# -- The body -------------------------------------------------------------------------------------


def _delivered_unacknowledged(original: Function) -> Function:
    def changed(self: Any, entry: Any) -> None:
        original(self, entry)
        self.acknowledge(entry.no, self.journal.end + 1, self._port.server_now_ms)

    return changed


def _two_at_once(original: Function) -> Function:
    def changed(self: Any, entry: Any) -> None:
        original(self, entry)
        second = self.journal.take_next()
        if second is not None:
            original(self, second)

    return changed


def _carried_out_early(original: Function) -> Function:
    def changed(self: Any, step: Any, function: Any) -> None:
        original(self, step, function)
        # Also while recorded entries still decide whether the body cancels it.
        self.local.carry_out(self._clock_ms)

    return changed


def mutants() -> list[Mutant]:
    """Return all of them."""
    m = Mutant
    worker, attempt = _fenced_by("attempt", 3), _fenced_by("worker_id", 2)
    deciders, events = task_rules.DECIDERS, task_handler._EVENTS  # noqa: SLF001 (tables)
    return [
        m("run_position_stale", journal_table, "insert_entries", _stale_position, MOVED),
        m("run_fence_without_worker", SqliteTx, "fenced", worker, MOVED),
        m("run_fence_without_attempt", SqliteTx, "fenced", attempt, MOVED),
        m("run_repeat_recorded_twice", run_handler, "_append", _repeat_appended, REPEATING),
        m("run_old_journal_kept", JournalRows, "renew", _journal_kept, BUNCHED),
        m("run_wake_lost", events, FinishKind.YIELDED, _yield_unchecked, CALM),
        m("run_news_unheard", deciders, EntryAppended, _news_unheard, CALM),
        m("run_parked_woken", deciders, EntryAppended, _parked_woken, CALM),
        m("run_timer_twice", wake_up, "wake", _timer_twice, CALM),
        m("run_timer_early", numbering, "too_early", _timer_early, CALM),
        m("run_cancel_lost", cancel, "cancel", _cancel_lost, CALM),
        m("run_clean_up_skipped", attempt_failure, "lose", _clean_up_skipped, LOSING),
        m("run_signal_lost", WorkingSet, "append_entries", _signal_lost, CALM),
        m("run_page_with_gap", hand_out, "with_pages", _page_without_news, CALM),
        m("run_delivered_unacknowledged", Run, "_record", _delivered_unacknowledged, CALM),
        m("run_two_at_once", Run, "_deliver", _two_at_once, LOSING),
        m("run_carried_out_early", Run, "start_call", _carried_out_early, LOSING),
    ]
