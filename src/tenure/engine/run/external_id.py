"""External ids within a batch: who has one now, and the runs that get one.

A command wants the ids in ``needs.external_ids``, looks who ``owner_of`` one is, and gives it to a
run that it makes by ``give``. If another server is faster, the unique index refuses the row, and
the batch runs again and finds the other's run.
"""

from __future__ import annotations

from tenure.core.run import external_id as rules
from tenure.core.task.record import TERMINAL, Task
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.run import command as c


def owner_of(ws: WorkingSet, namespace: str, external_id: str) -> Task | None:
    """Return the run that has an external id: the live one, or else the last that ended."""
    row = ws.rows.external_ids.get((namespace, external_id))
    return None if row is None else ws.tasks.get((namespace, row.run_id))


def live_owner_of(ws: WorkingSet, namespace: str, external_id: str) -> Task | None:
    """Return the live run that has an external id."""
    owner = owner_of(ws, namespace, external_id)
    return None if owner is None or owner.state in TERMINAL else owner


def give(ws: WorkingSet, namespace: str, external_id: str, new: Task) -> None:
    """Note that a new run of this batch has an external id."""
    ws.rows.external_ids.give((namespace, new.id), external_id, new.input)


def found_instead(ws: WorkingSet, command: c.StartRun) -> c.Started | None:
    """Return the answer for a run that has the external id of a start already, if that counts."""
    if not command.external_id:
        return None
    found = owner_of(ws, command.namespace, command.external_id)
    if found is None:
        return None
    known = rules.known(
        command.external_id, found, on_live=command.on_live, on_finished=command.on_finished
    )
    if known is None:
        return None
    content = ws.rows.external_ids[command.namespace, command.external_id].input
    return c.Started(
        known.id,
        known.state,
        is_new=False,
        outcome=known.last_outcome,
        content_differs=rules.differs(command.new, known, content),
    )
