"""Commands on a database without a server: its first API key.

A user who can open the database needs no key. The same check and the same handler as in a server
create the key, and the audit log contains it too.
"""

from __future__ import annotations

from typing import Final

import structlog

from tenure.engine.access import command as c
from tenure.engine.batch import run as batch
from tenure.engine.claim.plan import ClaimPlan
from tenure.engine.clock import Clock
from tenure.engine.command_table import SPECS
from tenure.engine.replica import replica_hints
from tenure.engine.replica.replica_hints import HintKind
from tenure.engine.settings import Settings
from tenure.errors import TenureError
from tenure.store.failure import Conflict, Lost, StoreError
from tenure.store.transaction import Store

log = structlog.get_logger("tenure.engine")
RUNS_MAX: Final = 4


async def create_key(store: Store, command: c.CreateKey, *, clock: Clock) -> c.CreatedKey:
    """Open a store, create a key in it, and close it again; running servers are notified.

    A SQLite file that a running server uses cannot be opened; send the command to that server.
    """
    SPECS[type(command)].check(command)
    try:
        await store.open()
        answer = await _run(store, command, clock)
        await _tell(store)
    finally:
        await store.close()
    if isinstance(answer, TenureError):
        raise answer
    assert isinstance(answer, c.CreatedKey)
    return answer


async def _tell(store: Store) -> None:
    """Notify the servers; they also read each second, so a created key is always found."""
    try:
        await store.notify(*replica_hints.pack({HintKind.ACCESS: {"changed"}}))
    except StoreError as error:
        log.warning("notify.failed", error=str(error))


async def _run(store: Store, command: c.CreateKey, clock: Clock) -> object:
    """Run the command as a batch of its own."""
    context = batch.Context(clock, clock.new_id(), Settings(), {}, frozenset(), ClaimPlan())
    for _ in range(RUNS_MAX):
        try:
            committed = await store.transaction(lambda tx: batch.run(tx, [command], context))
        except Conflict:
            continue
        return committed.answers[0]
    message = "The batch had too many conflicts. Try again."
    raise Lost(message, reason="conflict")
