"""The tasks and runs that fires start, in the transaction that writes the fire."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core.checksum import checksum
from tenure.core.journal.numbering import JournalEnd
from tenure.core.run import start as run_start
from tenure.core.run.external_id import OnLive
from tenure.core.schedule.origin import FireOrigin
from tenure.core.schedule.record import Fire, Schedule
from tenure.core.task import enqueue
from tenure.core.task.record import NewTask
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.run import external_id
from tenure.errors import AlreadyExists


def live_owner_id(ws: WorkingSet, schedule: Schedule) -> str:
    """Return the live run that has the external id of what a schedule starts."""
    name = schedule.spec.target.external_id
    owner = external_id.live_owner_of(ws, schedule.namespace, name) if name else None
    return "" if owner is None else owner.id


def launch(ws: WorkingSet, schedule: Schedule, fire: Fire) -> Fire:
    """Start the task of a fire that somebody asks for; a live run with the external id is its."""
    owner_id = live_owner_id(ws, schedule)
    if not owner_id:
        start(ws, schedule, fire)
        return fire
    if schedule.spec.target.on_live is OnLive.REJECT:
        name = schedule.spec.target.external_id
        message = f"The external id {name!r} belongs to run {owner_id}, which is live."
        raise AlreadyExists(message)
    return replace(fire, task_id=owner_id)


def start(ws: WorkingSet, schedule: Schedule, fire: Fire) -> None:
    """Store the task or the run of a fire."""
    target = schedule.spec.target
    assert fire.task_id is not None
    run_at_ms = fire.fire_at_ms + _jitter_ms(schedule, fire)
    new = NewTask(
        id=fire.task_id,
        type=target.type,
        queue=target.queue,
        spec=replace(target.spec, fire=FireOrigin(schedule.id, fire.fire_at_ms)),
        input=target.input,
        priority=target.priority,
        run_at_ms=run_at_ms if run_at_ms > ws.now_ms else 0,
        labels=target.labels,
        idempotency_key=fire.key,
    )
    namespace = schedule.namespace
    if not target.is_run:
        ws.tasks.add(enqueue.create(new, namespace=namespace, now_ms=ws.now_ms))
        return
    journal_id = ws.clock.new_id()
    run = run_start.create(
        new,
        namespace=namespace,
        now_ms=ws.now_ms,
        journal_id=journal_id,
        external_id=target.external_id,
    )
    ws.tasks.add(run)
    ws.journals.ends[namespace, run.id] = JournalEnd(journal_id)
    if target.external_id:
        external_id.give(ws, namespace, target.external_id, run)


def _jitter_ms(schedule: Schedule, fire: Fire) -> int:
    """Return how much later than its tick a task starts: the same for one key everywhere."""
    most = schedule.spec.jitter_ms
    return checksum(fire.key.encode()) % (most + 1) if most else 0
