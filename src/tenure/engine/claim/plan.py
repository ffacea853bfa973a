"""What a batch may hand out, and to which offers: planned before the transaction, from memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import msgspec

from tenure.core.assignment import Hand
from tenure.core.limits import PAYLOAD_BYTES_MAX, WORK_BATCH_MAX
from tenure.core.task.record import Task
from tenure.engine.claim.offer import Group, Offer, OfferBook
from tenure.engine.claim.position import ClaimPositions, LineKey
from tenure.engine.command import AnyCommand
from tenure.engine.task import command as c
from tenure.store.table.task import Demand


class ClaimPlan(msgspec.Struct, frozen=True):
    """Which offers may be served, and the probes that look for work for them.

    ``sole`` is what the probes would find, as far as this server knows.
    """

    hands: tuple[Hand, ...] = ()
    demands: tuple[Demand, ...] = ()
    is_direct: bool = True
    sole: Task | None = None

    @property
    def receivers(self) -> set[str]:
        """Return the workers that may be handed work."""
        return {hand.receiver_id for hand in self.hands}


class ClaimPlanner:
    """Chooses offers and probes for a batch."""

    def __init__(self, book: OfferBook, positions: ClaimPositions, *, is_direct: bool) -> None:
        """Plan from the offers and the claim positions of this server."""
        self._book = book
        self._positions = positions
        self._is_direct = is_direct
        self.dirty: set[Group] = set()

    def plan(
        self, commands: Sequence[AnyCommand], polls: Mapping[int, Offer], mono_ms: int
    ) -> ClaimPlan:
        """Return what this batch may hand out, and to which offers; ``polls`` are new ones."""
        groups: dict[Group, list[Offer]] = {group: [] for group in sorted(self.dirty)}
        self.dirty = set()
        for offer in polls.values():
            groups.setdefault(offer.group, []).append(offer)
        fresh, ending = self._expect(commands, groups)
        hands: list[Hand] = []
        demands: list[Demand] = []
        for group, new_offers in groups.items():
            choice = _Choice(self._positions, group, fresh, mono_ms)
            for offer in chain(self._book.in_group(group), new_offers):
                over = len(ending.get(offer.receiver_id, ()))
                choice.consider(offer, over)
            hands += choice.hands
            for task_type, amount in choice.wanted.items():
                key = (*group, task_type)
                demands += self._positions.demands(key, min(amount, WORK_BATCH_MAX), mono_ms)
        sole = self._positions.sole(demands)
        return ClaimPlan(tuple(hands), tuple(demands), self._is_direct, sole)

    def _expect(
        self, commands: Sequence[AnyCommand], groups: dict[Group, list[Offer]]
    ) -> tuple[dict[LineKey, int], dict[str, set[str]]]:
        """Return how many tasks a batch enqueues, and which attempts of each session it ends."""
        fresh: dict[LineKey, int] = {}
        ending: dict[str, set[str]] = {}
        for command in commands:
            if type(command) is c.EnqueueTasks:
                for new in command.tasks:
                    key = (command.namespace, new.queue, new.type)
                    fresh[key] = fresh.get(key, 0) + 1
            elif type(command) is c.FinishTasks:
                self._note_refill(command, ending, groups)
        for namespace, queue, _ in fresh:
            groups.setdefault((namespace, queue), [])
        return fresh, ending

    def _note_refill(
        self, command: c.FinishTasks, ending: dict[str, set[str]], groups: dict[Group, list[Offer]]
    ) -> None:
        """Accepted completions free slots of a session, which this batch refills."""
        offer = self._book.session_of(command.worker_id or "")
        if offer is not None:
            held = offer.held
            # A set, because a completion that is sent twice frees its slot once.
            over = ending.setdefault(offer.receiver_id, set())
            over.update(x.task_id for x in command.items if held.get(x.task_id) == x.attempt)
            groups.setdefault(offer.group, [])


class _Choice:
    """The longest-waiting offers of a queue, as many as what may be handed out needs."""

    def __init__(
        self, positions: ClaimPositions, group: Group, fresh: Mapping[LineKey, int], mono_ms: int
    ) -> None:
        self._positions = positions
        self._group = group
        self._fresh = fresh
        self._mono_ms = mono_ms
        self._most: dict[str, int] = {}
        self.wanted: dict[str, int] = {}
        self.hands: list[Hand] = []

    def consider(self, offer: Offer, ending: int) -> None:
        is_new = not offer.is_checked
        credit = offer.credit(ending)
        room_bytes = offer.sink.room_bytes
        if (credit <= 0 or room_bytes < PAYLOAD_BYTES_MAX) and not is_new:
            # With less room it could not take the next task, whatever its size.
            return
        is_useful = False
        for task_type in offer.types:
            most = self._most.get(task_type)
            if most is None:
                most = self._find_most(task_type)
            wanted = self.wanted.get(task_type, 0)
            if wanted < most:
                self.wanted[task_type] = wanted + credit
                is_useful = True
        if is_useful or is_new:
            self.hands.append(
                Hand(
                    offer_id=offer.id,
                    receiver_id=offer.receiver_id,
                    namespace=offer.group[0],
                    queue=offer.group[1],
                    types=offer.types,
                    credit=credit,
                    session_no=offer.session_no,
                    is_new=is_new,
                    speaker=offer.speaker if is_new else None,
                    room_bytes=room_bytes,
                )
            )

    def _find_most(self, task_type: str) -> int:
        """Return how many tasks of a type this batch may hand out at most."""
        key = (*self._group, task_type)
        has_backlog = self._positions.has_backlog(key, self._mono_ms)
        most = self._most[task_type] = WORK_BATCH_MAX if has_backlog else self._fresh.get(key, 0)
        return most
