"""What the journal of a run has of one step, for the worker that holds the run."""

from __future__ import annotations

import msgspec

from tenure.core import check
from tenure.core.limits import STEP_KEY_BYTES_MAX
from tenure.core.run import step_call
from tenure.core.run.record import NOT_BEGUN
from tenure.core.run.step_call import StepRecord
from tenure.core.task import decide as task_rules
from tenure.core.task.attempt import YIELDS
from tenure.core.task.event import StepsRecorded
from tenure.core.task.record import Task
from tenure.core.worker import decide as worker_rules
from tenure.engine.read.query import read
from tenure.engine.read.run import find_run
from tenure.errors import InvalidArgument, Rejection
from tenure.store.table import journal as journal_table
from tenure.store.table import worker as worker_table
from tenure.store.transaction import Store, Tx


class HeldRun(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A run as its holder names it; ``speaker`` is the key that must be the worker's own."""

    namespace: str
    run_id: str
    worker_id: str
    attempt: int
    speaker: str | None = None


class FoundStep(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A step as it stands, at the store's time.

    ``last_no`` is the last own number of the attempt. An attempt that ``has_yielded`` may still ask
    for the answer that it has missed.
    """

    run: Task
    record: StepRecord
    last_no: int
    now_ms: int
    has_yielded: bool


async def read_step(store: Store, held: HeldRun, step_id: str) -> FoundStep:
    """Return a step of a run, for nobody but its holder."""
    key = (check.namespace(held.namespace), check.task_id(held.run_id, "runId"))
    check.task_id(held.worker_id, "workerId")
    check.attempt(held.attempt)
    check.text(step_id, "stepId", bytes_max=STEP_KEY_BYTES_MAX)
    if not step_id:
        message = "stepId must not be empty: it is what the step is found by again"
        raise InvalidArgument(message, field="stepId")

    async def body(tx: Tx) -> FoundStep:
        run, journal_id = await find_run(tx, key)
        refusal = _refusal(run, held)
        has_yielded = refusal is not None and _has_yielded(run, held)
        await _check_worker(tx, held, None if has_yielded else refusal)
        ends = await journal_table.read_ends(tx, [journal_id])
        end = ends.get(journal_id)
        entries = await journal_table.read_of_key(tx, journal_id, step_id) if end else ()
        return FoundStep(
            run=run,
            record=step_call.record_of(step_id, entries),
            last_no=end.last_no_of(held.attempt) if end else 0,
            now_ms=await tx.now_ms(),
            has_yielded=has_yielded,
        )

    return await read(store, body)


async def read_seen(store: Store, run: Task) -> int:
    """Return up to where the holder of a run knows its journal."""
    assert run.link is not None
    journal_id = run.link.journal_id
    assert journal_id is not None
    handed = (run.progress.run or NOT_BEGUN).handed_pos

    async def body(tx: Tx) -> int:
        # The end first: what is appended in between is not counted as seen.
        ends = await journal_table.read_ends(tx, [journal_id])
        foreign = await journal_table.first_foreign(
            tx, journal_id, after=handed, attempt=run.attempt
        )
        end = ends[journal_id].pos if journal_id in ends else 0
        return step_call.seen_by_holder(end=end, handed=handed, foreign=foreign)

    return await read(store, body)


def _refusal(run: Task, held: HeldRun) -> Rejection | None:
    """Refuse whoever could not report a step either."""
    event = StepsRecorded(attempt=held.attempt, worker_id=held.worker_id)
    decision = task_rules.decide(run, event, 0)
    return decision if isinstance(decision, Rejection) else None


def _has_yielded(run: Task, held: HeldRun) -> bool:
    """Tell whether the last thing that has happened to a run is that this attempt has yielded."""
    is_last = run.attempt == held.attempt and run.last_outcome in YIELDS
    if run.finished_at_ms is not None:
        return False
    return is_last and (run.progress.run or NOT_BEGUN).home_worker_id == held.worker_id


async def _check_worker(tx: Tx, held: HeldRun, refusal: Rejection | None) -> None:
    """Raise why a report does not count; the first reason is that its worker is not live."""
    if refusal is None and held.speaker is None:
        return
    found = await worker_table.read_workers(tx, [held.worker_id])
    worker = found[0] if found else None
    inactive = worker_rules.report_refusal(
        worker, namespace=held.namespace, worker_id=held.worker_id
    )
    if inactive is None and worker is not None and held.speaker is not None:
        inactive = worker_rules.speaker_refusal(worker, held.speaker)
    if inactive is not None or refusal is not None:
        raise (inactive or refusal).to_error()  # type: ignore[union-attr]  # one is there
