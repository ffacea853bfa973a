"""What is done to a database before or without a server: its first API key.

Whoever can open the database needs no key for it. The same check and the same handler make the key
as in a server, and the audit log has it too.
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
    """Open a store, make a key in it, and close it again; servers that run on it hear of it.

    A SQLite file that belongs to a running server cannot be opened; ask that server.
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
    """Tell the servers; they look each second besides, and a key that was made is never lost."""
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
    message = "The batch met conflicts again and again."
    raise Lost(message, reason="conflict")
