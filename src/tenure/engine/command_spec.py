"""What the engine knows about a kind of command. Each room lists its own specs in ``spec.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.command import AnyCommand
from tenure.store.table.lock_order import RowSets
from tenure.store.transaction import LaneName

C = TypeVar("C", bound=AnyCommand)


def _accept(_command: AnyCommand) -> None:
    """Only the engine itself creates such a command."""


def _load_nothing(_needs: RowSets, _command: AnyCommand) -> None:
    """Claims have their own plan, and heartbeats their own lane."""


def _answer_elsewhere(_ws: WorkingSet, _command: AnyCommand) -> None:
    """The hand-out answers claims, and the heartbeat lane its own commands."""


class CommandSpec(msgspec.Struct, Generic[C], frozen=True):
    """One kind of command: how it is checked, loaded, decided and weighed."""

    kind: type[C]
    check: Callable[[C], None] = _accept
    needs: Callable[[RowSets, C], None] = _load_nothing
    handler: Callable[[WorkingSet, C], object] = _answer_elsewhere
    # Its share of a batch: the number of its tasks. And the bytes of its payloads.
    weigh: Callable[[C], int] = lambda _: 1
    payload_bytes: Callable[[C], int] = lambda _: 0
    lane: LaneName = LaneName.WORK
    # New work is refused first; a report is accepted while there is any room.
    is_new_work: bool = False
    # Somebody waits for what it delivers: the task, or its result.
    is_awaited: bool = False
    # It may become one write if it has one task.
    can_be_single: bool = False
