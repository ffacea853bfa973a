"""The entries of steps in the journals of runs, for whoever asks for single steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgspec

from tenure.core.journal.entry import Entry, day_of
from tenure.core.limits import ATTEMPT_MAX
from tenure.store.table.codec import AnyRow
from tenure.store.table.journal import entry_from
from tenure.store.transaction import Tx


class StepPart(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries of steps are wanted: so many, between two positions, of one step or of all.

    The first one comes however large it is, and the others as long as they have room.
    """

    after: int = 0
    upto: int = ATTEMPT_MAX
    key: str = ""
    amount: int = 1
    bytes_max: int = 0


async def find_steps(tx: Tx, journal_id: str, part: StepPart) -> list[Entry]:
    """Read entries of steps in their order."""
    given = (journal_id, day_of(journal_id), *msgspec.structs.astuple(part))
    rows = cast("Sequence[AnyRow]", await tx.one("find_steps", *given))
    return [entry_from(row) for row in rows]


async def find_following(tx: Tx, entries: Sequence[Entry]) -> dict[int, Entry]:
    """Read, by position, the next entry of the same step by the same attempt of its run."""
    given = [
        (each.journal_id, day_of(each.journal_id), each.key, each.attempt, each.pos)
        for each in entries
    ]
    rows = cast("Sequence[AnyRow]", await tx.each("find_following_entries", given))
    return {row[0]: entry_from(row[1:]) for row in rows}
