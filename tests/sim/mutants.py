"""Deliberate bugs. Each replaces one function and must be caught under the faults that it names."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final
from unittest import mock

from msgspec.structs import replace

from tenure.core import queue as queue_rules
from tenure.core.assignment import _Assignment
from tenure.core.task import (
    attempt_end,
    attempt_failure,
    deadline,
    enqueue_window,
    exclusive,
    refusal,
)
from tenure.core.task import decide as task_rules
from tenure.core.task.deadline import _BY_STATE
from tenure.core.task.enqueue_window import EnqueueWindow
from tenure.core.task.event import HandedOut, WorkerLost
from tenure.core.task.record import ATTEMPT_HELD, TERMINAL, TaskState
from tenure.core.worker import judge_readiness, reconcile
from tenure.core.worker.judge import StaleServer
from tenure.core.worker.lease import Lease, SessionLost
from tenure.core.worker.record import WorkerStatus
from tenure.engine.batch.row_cache import RowCache
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.claim import hand_out
from tenure.engine.claim.offer import Offer
from tenure.engine.claim.position import ClaimPositions
from tenure.engine.claim.worker_notifier import WorkerNotifier
from tenure.engine.command_table import SPECS
from tenure.engine.engine import Engine
from tenure.engine.replica.result_watch import ResultWatch
from tenure.engine.service import Report
from tenure.engine.services.due_tasks import DueTasks
from tenure.engine.services.held_release import HeldRelease
from tenure.engine.task import handler as task_handler
from tenure.engine.task.command import EnqueueTasks
from tenure.engine.worker import handler as worker_handler
from tenure.engine.worker import judgement
from tenure.engine.worker.command import Registration, ReleaseHeldTasks
from tenure.store.sqlite.store import SqliteStore, SqliteTx
from tenure.store.table import codec
from tenure.store.table import lease as lease_table
from tenure.store.table import task as task_table
from tests.sim import child_mutants, run_mutants, served_mutants
from tests.sim.faults import CALM, Faults
from tests.sim.mutant import Function, Mutant

LOSSY: Final = Faults(
    request_lost=0.05, reply_lost=0.15, duplicated=0.15, slow_share=0.25, slow_ms=1_500
)
DYING: Final = Faults(worker_crash_rate=0.8, worker_stop_rate=0.5, reply_lost=0.1)
STALLING: Final = Faults(
    worker_stop_rate=1.2, worker_stop_ms=4_000, slow_share=0.2, slow_ms=1_500, duplicated=0.1
)
MOVING: Final = Faults(session_break_rate=1.5, move_rate=0.5, slow_share=0.1, pause_share=0.2)
CRASHING: Final = Faults(
    engine_crash_rate=0.6, worker_crash_rate=0.8, pause_share=0.4, pause_ms=150, drift=0.01
)
PAUSING: Final = Faults(
    pause_share=0.5, pause_ms=150, duplicated=0.2, slow_share=0.2, slow_ms=900, reply_lost=0.1
)
JUMPING: Final = Faults(jump_rate=0.5, jump_ahead_ms=30_000, pause_share=0.3, slow_share=0.2)
CUTTING: Final = Faults(
    partition_rate=1.5, partition_ms=4_000, session_break_rate=1.0, engine_stop_rate=0.3
)
# Workers that cannot be told are taken offline long before their leases are over.
ENDING: Final = Faults(
    evict_rate=1.5, supersede_rate=0.5, partition_rate=2.0, partition_ms=4_000, slow_share=0.2
)
LATE: Final = Faults(slow_share=0.3, slow_ms=3_000, evict_rate=1.0, duplicated=0.3)
LAGGING: Final = Faults(jump_rate=0.5, jump_ahead_ms=30_000, pause_share=0.9, pause_ms=400)
CROSSING: Final = Faults(
    reply_lost=0.35, slow_share=0.3, slow_ms=500, pause_share=0.8, pause_ms=300
)
# Servers die between the end of a worker and the release of what it held.
LEAVING: Final = Faults(
    engine_crash_rate=1.5, evict_rate=1.5, worker_crash_rate=0.8, pause_share=0.9, pause_ms=400
)
STUCK: Final = Faults(stuck_share=0.6, stuck_ms=5_000)
STUCK_BRIEFLY: Final = Faults(stuck_share=0.8, stuck_ms=800)
DRAINING: Final = Faults(drain_rate=1.0, evict_rate=0.3, supersede_rate=0.3, slow_share=0.1)
# Servers end attempts of sessions that others have.
FORGETTING_LATE: Final = Faults(slow_share=0.3, slow_ms=3_000, forget_share=0.4)
FORGETTING: Final = Faults(forget_share=0.15, reply_lost=0.2, slow_share=0.3, pause_share=0.3)


def _in_spec(part: str, change: Callable[[Function], Function]) -> Callable[[Any], Any]:
    """Change one function of a command's spec."""
    return lambda spec: replace(spec, **{part: change(getattr(spec, part))})


# -- Attempts -------------------------------------------------------------------------------------


def _attempt_not_checked(original: Function) -> Function:
    def changed(row: Any, event: Any, *rest: Any) -> Any:
        same = replace(event, attempt=row.attempt) if row.is_attempt_live else event
        return original(row, same, *rest)

    return changed


def _worker_not_checked(original: Function) -> Function:
    def changed(row: Any, event: Any, *rest: Any) -> Any:
        return original(row, replace(event, worker_id=row.worker_id), *rest)

    return changed


def _stale_on_pending(original: Function) -> Function:
    def changed(row: Any, event: Any, *rest: Any) -> Any:
        if event.attempt == row.attempt and row.state == "pending":
            return None
        return original(row, event, *rest)

    return changed


def _terminal_again(original: Function) -> Function:
    def changed(row: Any, event: Any, *rest: Any) -> Any:
        if row.state in TERMINAL and event.attempt == row.attempt:
            return None
        return original(row, event, *rest)

    return changed


def _lost_report(_original: Function) -> Function:
    return lambda _records, _written: None


def _set_version(tx: Any, row: Any) -> None:
    """Make a fence hold."""
    place = (row[2], row[0], row[1])
    tx._connection.execute(  # noqa: SLF001 (there is no statement that does so)
        "UPDATE tasks SET version = ? WHERE namespace = ? AND id = ?", place
    )


def _unfenced(original: Function) -> Function:
    async def changed(self: Any, name: str, rows: Any) -> int:
        if name == "update_tasks":
            for row in rows:
                _set_version(self, row)
        written: int = await original(self, name, rows)
        return written

    return changed


def _repeated_rejected(_original: Function) -> Function:
    return lambda *_: None


def _cache_stale(original: Function) -> Function:
    def changed(self: Any, tasks: Any, **options: Any) -> None:
        original(self, tasks, **options)
        for key, row in tasks.items():
            if row.state not in ("dispatched", "running"):
                self.rows[key] = replace(row, version=row.version + 1)

    return changed


def _attempt_reused(original: Function) -> Function:
    def changed(row: Any, event: Any, now_ms: int) -> Any:
        decision = original(row, event, now_ms)
        if row.last_outcome == "undelivered":
            return replace(decision, task=replace(decision.task, attempt=row.attempt))
        return decision

    return changed


# -- Ends of attempts -----------------------------------------------------------------------------


def _undelivered_charged(original: Function) -> Function:
    def changed(row: Any, now_ms: int) -> Any:
        progress = row.progress
        progress = replace(progress, interruption_count=progress.interruption_count + 1)
        return original(replace(row, progress=progress), now_ms)

    return changed


def _loss_counted_twice(original: Function) -> Function:
    def changed(row: Any, *rest: Any) -> Any:
        progress = row.progress
        progress = replace(progress, interruption_count=progress.interruption_count + 1)
        return original(replace(row, progress=progress), *rest)

    return changed


def _retried_after_cancel(original: Function) -> Function:
    def changed(row: Any, *rest: Any) -> Any:
        return original(replace(row, progress=replace(row.progress, cancel_at_ms=0)), *rest)

    return changed


def _pause_forgotten(original: Function) -> Function:
    def changed(row: Any, *rest: Any) -> Any:
        return original(replace(row, progress=replace(row.progress, pause_wanted=False)), *rest)

    return changed


def _no_record(original: Function) -> Function:
    async def changed(_tx: Any, _attempts: Any) -> None:
        return None

    return original._replace(insert=changed)


# -- Workers and leases ---------------------------------------------------------------------------


def _token_not_checked(original: Function) -> Function:
    async def changed(tx: Any, beats: Any, now_ms: int) -> Any:
        leases = {
            each.worker_id: each
            for each in await lease_table.read_leases(tx, [b[0] for b in beats])
        }
        known = [
            (worker_id, namespace, replace(beat, token=leases[worker_id].token))
            for worker_id, namespace, beat in beats
            if worker_id in leases
        ]
        return await original(tx, known, now_ms)

    return changed


def _deltas_twice(original: Function) -> Function:
    async def changed(tx: Any, beats: Any, now_ms: int) -> Any:
        doubled = [
            (who, namespace, replace(beat, completed_delta=2 * beat.completed_delta))
            for who, namespace, beat in beats
        ]
        return await original(tx, doubled, now_ms)

    return changed


def _lease_too_long(original: Function) -> Function:
    async def changed(tx: Any, beats: Any, now_ms: int) -> Any:
        return await original(tx, beats, now_ms + 2_000)

    return changed


def _offline_revived(original: Function) -> Function:
    async def changed(tx: Any, beats: Any, now_ms: int) -> Any:
        for worker_id, namespace, beat in beats:
            if not await lease_table.read_leases(tx, [worker_id]):
                row = (worker_id, namespace, beat.server_id, now_ms + 1_000, 1_000, beat.token)
                await tx.each("insert_leases", [(*row, now_ms, now_ms)])
        return await original(tx, beats, now_ms)

    return changed


def _registered_offline(_original: Function) -> Function:
    def changed(ws: Any, worker: Any, _key_id: str) -> Any:
        lease = ws.leases.get(worker.id)
        if lease is None:
            online = replace(
                worker,
                status=WorkerStatus.ONLINE,
                end_reason=None,
                ended_at_ms=None,
                release_pending=False,
            )
            ws.workers[worker.id] = ws.workers.changed[worker.id] = online
            lease = Lease(worker.id, worker.namespace, ws.server_id, ws.now_ms + 900, 900)
            ws.leases[worker.id] = ws.leases.new[worker.id] = lease
        return Registration(worker, lease, 300)

    return changed


def _held_judged_early(original: Function) -> Function:
    return lambda row, heard_at_ms, session_no: original(
        row, heard_at_ms=max(heard_at_ms, 2**60), session_no=session_no
    )


def _dispatched_judged(original: Function) -> Function:
    return lambda row, heard_at_ms, session_no: original(
        row, heard_at_ms=heard_at_ms, session_no=2**30 if session_no is None else session_no
    )


def _held_ignored(_original: Function) -> Function:
    return lambda *_args, **_options: ()


def _judged_unsighted(_original: Function) -> Function:
    return lambda command, **_options: 10**9 if command.judge_readiness is not None else 0


def _jump_unseen(original: Function) -> Function:
    def changed(seen: Any, *, mono_ms: int, store_now_ms: int) -> Any:
        found = original(seen, mono_ms=mono_ms, store_now_ms=store_now_ms)
        return replace(found, sighted_since_mono_ms=seen.sighted_since_mono_ms)

    return changed


def _sight_before_batch(_original: Function) -> Function:
    return lambda command, **_options: command.sighted_ms


def _server_not_spared(_original: Function) -> Function:
    return lambda _server, _lease_ms: 0


def _no_grace(original: Function) -> Function:
    def changed(self: Any, worker_id: str, event: Any) -> None:
        del event
        original(self, worker_id, SessionLost(1))

    return changed


def _release_left(_original: Function) -> Function:
    async def changed(_self: Any, _engine: Any) -> Report:
        return Report()

    return changed


def _released_too_soon(original: Function) -> Function:
    def changed(ws: Any, command: Any) -> Any:
        held = ws.tasks.held.get(command.worker_id, [])
        ws.tasks.held[command.worker_id] = held[:1]
        return original(ws, command)

    return changed


def _foreign_worker(_original: Function) -> Function:
    return lambda ws, _namespace, worker_id: ws.workers[worker_id]


def _exclusive_cut_early(original: Function) -> Function:
    return lambda row, event, now_ms: original(row, replace(event, lease_ms=0), now_ms)


def _no_exclusive_margin(_original: Function) -> Function:
    return lambda _row, _period_ms: 0


def _lease_not_kept(_original: Function) -> Function:
    async def changed(_tx: Any, _worker_ids: Any) -> None:
        return None

    return changed


# -- Hand-outs ------------------------------------------------------------------------------------


def _drain_ignored(original: Function) -> Function:
    def changed(ws: Any, hand: Any, result: Any) -> bool:
        worker = ws.workers.get(hand.receiver_id)
        if worker is not None and worker.status is WorkerStatus.DRAINING:
            return True
        return bool(original(ws, hand, result))

    return changed


def _alone_unfenced(original: Function) -> Function:
    async def changed(self: Any, name: str, row: Any, *shared: Any) -> bool:
        if name == "insert_alone":
            return bool(await original(self, "insert_tasks", row))
        return bool(await original(self, name, row, *shared))

    return changed


def _alone_without_version(original: Function) -> Function:
    async def changed(self: Any, name: str, row: Any, *shared: Any) -> bool:
        async def body(tx: Any) -> None:
            _set_version(tx, row)

        if name == "update_alone":
            await self.transaction(body)
        return bool(await original(self, name, row, *shared))

    return changed


def _old_session_served(original: Function) -> Function:
    def changed(ws: Any, hand: Any, result: Any) -> bool:
        worker = ws.workers.get(hand.receiver_id)
        if worker is not None and hand.session_no:
            hand = replace(hand, session_no=worker.session_no)
        return bool(original(ws, hand, result))

    return changed


def _type_ignored(original: Function) -> Function:
    def changed(self: Any, row: Any, size: int) -> int | None:
        found: int | None = original(self, row, size)
        if found is None:
            return next((i for i, credit in enumerate(self._credits) if credit > 0), None)
        return found

    return changed


def _limit_ignored(_original: Function) -> Function:
    return lambda queue, *, held_count, wanted: 0 if queue.is_paused else wanted - 0 * held_count


def _queue_pause_ignored(original: Function) -> Function:
    return lambda queue, **options: original(replace(queue, is_paused=False), **options)


def _slot_leaked(_original: Function) -> Function:
    return lambda *_: None


def _window_ignored(_original: Function) -> Function:
    return lambda self, _ending=0: self.window


def _held_not_counted(_original: Function) -> Function:
    async def changed(*_: Any) -> dict[str, Any]:
        return {}

    return changed


def _only_hints(_original: Function) -> Function:
    def changed(self: Any, key: Any, mono_ms: int) -> bool:
        del mono_ms
        line = self._lines.get(key)
        return line is None or bool(line.maybe_fresh) or line.maybe_returned

    return changed


def _wake_lost(_original: Function) -> Function:
    return lambda _self: None


# -- Enqueue and timers ---------------------------------------------------------------------------


def _resend_inserted(_original: Function) -> Function:
    def changed(needs: Any, command: Any) -> None:
        needs.namespaces.wanted.add(command.namespace)
        needs.keys.wanted.update((command.namespace, t.idempotency_key) for t in command.tasks)

    return changed


def _never_looked_up(_original: Function) -> Function:
    return lambda _self, _task_id: True


def _resend_not_held_back(_original: Function) -> Function:
    return lambda _task_id, _now_ms: 0


def _results_of_others_unread(_original: Function) -> Function:
    return lambda _self: None


def _key_ignored(_original: Function) -> Function:
    return lambda _key, _now_ms: True


def _answered_before_save(original: Function) -> Function:
    async def changed(tx: Any, tasks: Any) -> None:
        await original(tx, tasks[1:] if len(tasks) > 2 else tasks)

    return changed


def _due_not_rechecked(original: Function) -> Function:
    def changed(row: Any, *, now_ms: int, sighted_ms: int) -> Any:
        if row.state == "running" and row.spec.heartbeat_timeout_ms:
            return deadline.DeadlineKind.HEARTBEAT
        return original(row, now_ms=now_ms, sighted_ms=sighted_ms)

    return changed


def _delivery_unchecked(original: Function) -> Function:
    def changed(row: Any, *rest: Any) -> Any:
        found = original(row, *rest)
        return [each for each in found if each.kind is not deadline.DeadlineKind.DELIVERY]

    return changed


def _timer_off(original: Function) -> Function:
    def changed(row: Any) -> Any:
        armed = original(row)
        return replace(armed, due_at_ms=None) if armed.state == "pending" else armed

    return changed


def _due_dropped(_original: Function) -> Function:
    async def changed(_self: Any, engine: Any) -> Report:
        engine.alarm.clear()
        return Report()

    return changed


def _cancel_forgotten(original: Function) -> Function:
    def changed(row: Any) -> Any:
        values = original(row)
        if row.state in ATTEMPT_HELD and row.progress.cancel_at_ms:
            again = replace(row, progress=replace(row.progress, cancel_at_ms=0))
            return original(again)
        return values

    return changed


def _list() -> list[Mutant]:
    m = Mutant
    return [
        m("attempt_not_checked", refusal, "of_report", _attempt_not_checked, STALLING),
        m("worker_not_checked", refusal, "of_report", _worker_not_checked, CALM),
        m("stale_attempt_on_pending", refusal, "of_report", _stale_on_pending, STALLING),
        m("terminal_changed", refusal, "of_report", _terminal_again, LOSSY),
        m("fence_ignored", task_table, "check_fence", _lost_report, PAUSING),
        m("write_unfenced", SqliteTx, "fenced", _unfenced, PAUSING),
        m("repeat_rejected", task_handler, "_first_answer", _repeated_rejected, LOSSY),
        m("finished_rows_cached", RowCache, "saved", _cache_stale, PAUSING),
        m("attempt_reused", task_rules.DECIDERS, HandedOut, _attempt_reused, LOSSY),
        m("undelivered_charged", attempt_failure, "undelivered", _undelivered_charged, LOSSY),
        m("loss_counted_twice", attempt_failure, "lose", _loss_counted_twice, DYING),
        m("retried_after_cancel", attempt_failure, "fail_attempt", _retried_after_cancel, CALM),
        m("pause_forgotten", attempt_end, "give_back", _pause_forgotten, CALM),
        m("attempt_not_recorded", task_table.AttemptRows, "table", _no_record, CALM),
        m("token_not_checked", lease_table, "beat_leases", _token_not_checked, LOSSY),
        m("deltas_counted_twice", lease_table, "beat_leases", _deltas_twice, CALM),
        m("lease_too_long", lease_table, "beat_leases", _lease_too_long, CALM),
        m("offline_revived_by_beat", lease_table, "beat_leases", _offline_revived, STALLING),
        m("offline_registered", worker_handler, "_registered_again", _registered_offline, STALLING),
        m("held_judged_early", reconcile, "missing", _held_judged_early, CROSSING),
        m("dispatched_judged", reconcile, "missing", _dispatched_judged, LOSSY),
        m("judged_unsighted", judgement, "still_sighted_ms", _judged_unsighted, JUMPING),
        m("sight_before_batch", judgement, "still_sighted_ms", _sight_before_batch, LAGGING),
        m("jump_unseen", judge_readiness, "commit", _jump_unseen, JUMPING),
        m("server_not_spared", StaleServer, "spared_until_ms", _server_not_spared, CRASHING),
        m("no_suspect_grace", WorkingSet, "suspect", _no_grace, DYING),
        m("release_left_by_crash", HeldRelease, "run_once", _release_left, LEAVING),
        m("exclusive_cut_early", task_rules.DECIDERS, WorkerLost, _exclusive_cut_early, ENDING),
        m("exclusive_without_margin", exclusive, "margin_ms", _no_exclusive_margin, CUTTING),
        m("ended_lease_not_kept", lease_table, "keep_leases", _lease_not_kept, ENDING),
        m("foreign_worker", worker_handler, "_administered", _foreign_worker, CALM),
        m("drain_ignored", hand_out, "_may_receive", _drain_ignored, DRAINING),
        m("old_session_served", hand_out, "_may_receive", _old_session_served, CUTTING),
        m("alone_unfenced", SqliteStore, "write", _alone_unfenced, DRAINING),
        m("alone_without_version", SqliteStore, "write", _alone_without_version, CALM),
        m("type_ignored", _Assignment, "_choose", _type_ignored, CALM),
        m("limit_ignored", queue_rules, "free_slots", _limit_ignored, CALM),
        m("queue_pause_ignored", queue_rules, "free_slots", _queue_pause_ignored, CALM),
        m("slot_leaked", WorkerNotifier, "forget_held", _slot_leaked, FORGETTING_LATE),
        m("slots_ignored", Offer, "credit", _window_ignored, CALM),
        m("held_not_counted", hand_out, "_count", _held_not_counted, LOSSY),
        m("other_servers_unheard", ClaimPositions, "has_backlog", _only_hints, CALM),
        m("fallback_lost", Engine, "look_for_work", _wake_lost, CALM),
        m("resend_inserted", SPECS, EnqueueTasks, _in_spec("needs", _resend_inserted), LOSSY),
        m("enqueue_always_young", EnqueueWindow, "has", _never_looked_up, STUCK),
        m(
            "resend_not_held_back",
            enqueue_window,
            "undecided_ms",
            _resend_not_held_back,
            STUCK_BRIEFLY,
        ),
        m("results_of_others_unread", ResultWatch, "_period_ms", _results_of_others_unread, CALM),
        m("key_ignored", task_handler, "_is_over", _key_ignored, CALM),
        m("enqueue_lost", task_table, "insert_tasks", _answered_before_save, CALM),
        m("due_not_rechecked", deadline, "first_expired", _due_not_rechecked, CALM),
        m("delivery_unchecked", _BY_STATE, TaskState.DISPATCHED, _delivery_unchecked, LOSSY),
        m("timer_off", deadline, "armed", _timer_off, CALM),
        m("due_dropped", DueTasks, "run_once", _due_dropped, CALM),
        m("cancel_forgotten", codec, "task_updated", _cancel_forgotten, PAUSING),
        m(
            "released_too_soon",
            SPECS,
            ReleaseHeldTasks,
            _in_spec("handler", _released_too_soon),
            DYING,
        ),
    ]


MUTANTS: Final = {
    each.name: each
    for each in (
        *_list(),
        *run_mutants.mutants(),
        *child_mutants.mutants(),
        *served_mutants.mutants(),
    )
}


@contextlib.contextmanager
def applied(name: str) -> Iterator[Faults]:
    """Put one bug into the code, and give the faults under which it must show."""
    mutant = MUTANTS[name]
    if isinstance(mutant.owner, dict):
        changed = mutant.change(mutant.owner[mutant.attribute])
        with mock.patch.dict(mutant.owner, {mutant.attribute: changed}):
            yield mutant.faults
        return
    changed = mutant.change(getattr(mutant.owner, mutant.attribute))
    with mock.patch.object(mutant.owner, mutant.attribute, changed):
        yield mutant.faults
