"""What a batch may hand out, and to whom: planned before the transaction, from memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import msgspec

from tenure.core.assignment import Hand
from tenure.core.limits import OFFERS_COMPARED_MAX, PAYLOAD_BYTES_MAX, WORK_BATCH_MAX
from tenure.core.task.record import Task
from tenure.engine.claim.offer import Group, Offer, OfferBook
from tenure.engine.claim.position import ClaimPositions, LineKey
from tenure.engine.claim.waiting_runs import WaitingRuns
from tenure.engine.command import AnyCommand
from tenure.engine.run.child_command import SpawnTasks
from tenure.engine.run.command import StartRun
from tenure.engine.task import command as c
from tenure.engine.worker.command import OpenSession
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
        """Return who may be handed work, or is to be checked."""
        return {hand.receiver_id for hand in self.hands}

    @property
    def counted(self) -> set[str]:
        """Return of whom has to be counted what they hold."""
        return {hand.receiver_id for hand in self.hands if hand.is_counted and hand.credit > 0}


class ClaimPlanner:
    """Chooses offers and probes for a batch."""

    def __init__(
        self,
        book: OfferBook,
        positions: ClaimPositions,
        waiting_runs: WaitingRuns,
        *,
        is_direct: bool,
    ) -> None:
        """Plan from the offers, the claim positions and the runs that this server knows."""
        self._book = book
        self._positions = positions
        self._waiting_runs = waiting_runs
        self._is_direct = is_direct
        self.dirty: set[Group] = set()
        self._put_off: set[Group] = set()

    def plan(
        self, commands: Sequence[AnyCommand], polls: Mapping[int, Offer], mono_ms: int
    ) -> ClaimPlan:
        """Return what this batch may hand out, and to whom; ``polls`` are new ones."""
        groups: dict[Group, list[Offer]] = {group: [] for group in self._take_dirty(commands)}
        for offer in polls.values():
            groups.setdefault(offer.group, []).append(offer)
        fresh, ending = self._expect(commands, groups)
        homes = self._expect_woken(commands, fresh)
        for namespace, queue, _ in fresh:
            groups.setdefault((namespace, queue), [])
        hands: list[Hand] = []
        demands: list[Demand] = []
        for group, others in groups.items():
            choice = _Choice(self._book, self._positions, group, fresh, mono_ms)
            hands += choice.choose(others, ending, homes.get(group, ()))
            for task_type, amount in choice.wanted.items():
                key = (*group, task_type)
                most = min(amount, WORK_BATCH_MAX)
                takes_runs = task_type in choice.with_runs
                demands += self._positions.demands(key, most, mono_ms, takes_runs=takes_runs)
        sole = self._positions.sole(demands)
        return ClaimPlan(tuple(hands), tuple(demands), self._is_direct, sole)

    def _take_dirty(self, commands: Sequence[AnyCommand]) -> list[Group]:
        """Return the queues to look at. While sessions open, what waits is shared with them.

        They stand here after this batch, so a queue of their namespace is put off once.
        """
        if not self.dirty:
            self._put_off = set()
            return []
        opening = {each.namespace for each in commands if type(each) is OpenSession}
        put_off = {each for each in self.dirty - self._put_off if each[0] in opening}
        found = sorted(self.dirty - put_off)
        self._put_off, self.dirty = put_off, set(put_off)
        return found

    def _expect(
        self, commands: Sequence[AnyCommand], groups: dict[Group, list[Offer]]
    ) -> tuple[dict[LineKey, int], dict[str, set[str]]]:
        """Return how many tasks a batch enqueues, and what it ends of each worker's."""
        fresh: dict[LineKey, int] = {}
        ending: dict[str, set[str]] = {}
        for command in commands:
            if type(command) is c.ClaimTasks:
                continue
            if type(command) is c.EnqueueTasks:
                for new in command.tasks:
                    key = (command.namespace, new.queue, new.type)
                    fresh[key] = fresh.get(key, 0) + 1
            elif type(command) is c.FinishTasks:
                self._note_refill(command, ending, groups)
            elif type(command) is StartRun:
                key = (command.namespace, command.new.queue, command.new.type)
                fresh[key] = fresh.get(key, 0) + 1
            elif type(command) is SpawnTasks:
                for key, count in _spawned(command).items():
                    fresh[key] = fresh.get(key, 0) + count
        return fresh, ending

    def _expect_woken(
        self, commands: Sequence[AnyCommand], fresh: dict[LineKey, int]
    ) -> dict[Group, list[str]]:
        """Count runs that a batch may wake; return the workers that had them last, by queue."""
        homes: dict[Group, list[str]] = {}
        for run in self._waiting_runs.woken_by(commands) if self._waiting_runs else ():
            key = (*run.group, run.type)
            fresh[key] = fresh.get(key, 0) + 1
            if run.home_worker_id is not None:
                homes.setdefault(run.group, []).append(run.home_worker_id)
        return homes

    def _note_refill(
        self, command: c.FinishTasks, ending: dict[str, set[str]], groups: dict[Group, list[Offer]]
    ) -> None:
        """Accepted completions free slots of a worker, which this batch refills."""
        worker_id = command.worker_id or ""
        offer = self._book.session_of(worker_id)
        full = self._book.full_of(worker_id)
        if offer is not None:
            held = offer.held
            over = {x.task_id for x in command.items if held.get(x.task_id) == x.attempt}
            full = [offer] if offer.credit() <= 0 and not full else full
            groups.setdefault(offer.group, [])
        elif full:
            # How many slots they free is counted; here it is enough that they may.
            over = {x.task_id for x in command.items}
        else:
            return
        if worker_id not in ending:
            ending[worker_id] = set()
            for each in full:
                groups.setdefault(each.group, []).append(each)
        # A set, because a completion that is sent twice frees its slot once.
        ending[worker_id] |= over


def _spawned(command: SpawnTasks) -> Counter[LineKey]:
    """Return how many children runs may make, by where they will be in line."""
    return Counter(
        (command.namespace, child.new.queue, child.new.type)
        for report in command.items
        for child in report.children
    )


_Candidate = tuple[float, int, Offer, int, int]
"""Which share of its window is free, below zero; its place in the line; the offer; credit; room."""


class _Choice:
    """The offers of a queue among which a batch shares out what it may hand out.

    The longest waiting are compared: as many as it takes to give everything away, and beyond that
    up to a limit. If they are more than there are tasks, those with the largest free share count.
    """

    def __init__(
        self,
        book: OfferBook,
        positions: ClaimPositions,
        group: Group,
        fresh: Mapping[LineKey, int],
        mono_ms: int,
    ) -> None:
        self._book = book
        self._positions = positions
        self._group = group
        self._fresh = fresh
        self._mono_ms = mono_ms
        self._most: dict[str, int] = {}
        # Offers of workers that had a run last which may be woken.
        self._homes: set[int] = set()
        # Types for which more offers are looked at.
        self._open: set[str] = set()
        self._candidates: dict[str, list[_Candidate]] = {}
        self._place = 0
        self._passed_count = 0
        self.wanted: dict[str, int] = {}
        # Types of which somebody who is compared takes runs too.
        self.with_runs: set[str] = set()

    def choose(
        self, others: Sequence[Offer], ending: Mapping[str, set[str]], homes: Sequence[str]
    ) -> list[Hand]:
        """Return who may be served; ``others`` stand in no line, because they are new or full.

        ``homes`` are workers that had runs last which may be woken; they are always compared.
        """
        wishes = self._book.wishes(self._group)
        if not others and not wishes:
            return []
        # Most offers of a queue can run the same.
        for wish in dict.fromkeys(chain(wishes, [offer.wish for offer in others])):
            self._find_most(*wish)
        self._compare(self._at_home(homes) if homes else (), ending)
        rest: Iterable[Offer] = chain(self._book.waiting(self._group, self._open), others)
        if self._homes:
            rest = (offer for offer in rest if offer.id not in self._homes)
        self._compare(rest, ending)
        hands = [_hand(offer, credit, room) for _, _, offer, credit, room in self._best()]
        if len(hands) < self._place + self._passed_count:
            hands += _unchecked(others, hands)
        return hands

    def _compare(self, offers: Iterable[Offer], ending: Mapping[str, set[str]]) -> None:
        for offer in offers:
            over = ending.get(offer.receiver_id)
            credit, share = self._free(offer, len(over) if over else 0)
            room_bytes = offer.sink.room_bytes
            if credit <= 0 or room_bytes < PAYLOAD_BYTES_MAX:
                # With less room it could not take the next task, whichever it is.
                self._passed_count += 1
                continue
            self._place += 1
            candidate = (-share, self._place, offer, credit, room_bytes)
            for task_type in offer.types:
                if task_type in self._candidates:
                    self._take_in(task_type, candidate)

    def _at_home(self, homes: Sequence[str]) -> list[Offer]:
        """Return the sessions here of workers that had runs last."""
        found = {}
        for worker_id in homes:
            offer = self._book.session_of(worker_id)
            if offer is not None and offer.group == self._group and not offer.is_late:
                found[offer.id] = offer
        self._homes = set(found)
        return list(found.values())

    def _best(self) -> Iterable[_Candidate]:
        """Return, in the order of their waiting, those that get something if there is enough."""
        chosen: dict[int, _Candidate] = {}
        for task_type, candidates in self._candidates.items():
            most = self._most[task_type]
            if len(self._candidates) == 1 and len(candidates) <= most:
                return candidates
            best = candidates if len(candidates) <= most else sorted(candidates)[:most]
            chosen |= {each[1]: each for each in best}
            for each in candidates if self._homes else ():
                if each[2].id in self._homes:
                    chosen[each[1]] = each
        return [chosen[place] for place in sorted(chosen)]

    def _find_most(self, types: frozenset[str], takes_runs: bool) -> None:  # noqa: FBT001 (a wish)
        """Note how many tasks of each type this batch may hand out at the most."""
        for task_type in types:
            if self._most.get(task_type):
                continue
            key = (*self._group, task_type)
            has_backlog = self._positions.has_backlog(key, self._mono_ms)
            has_backlog = has_backlog or (takes_runs and self._positions.may_have_runs(key))
            most = WORK_BATCH_MAX if has_backlog else self._fresh.get(key, 0)
            self._most[task_type] = most
            if most:
                self._open.add(task_type)
                self._candidates[task_type] = []

    def _free(self, offer: Offer, ending: int) -> tuple[int, float]:
        """Return the credit and the free share of an offer, of which so many end in this batch."""
        credit = offer.credit(ending)
        count = self._book.count_of(offer)
        if count is None:
            return credit, credit / (offer.window or 1)
        free = count.free + ending
        # A new poll is counted in any case: the count may be from before an end elsewhere.
        if free < credit and offer.is_checked:
            credit = free
        return credit, free / count.slots

    def _take_in(self, task_type: str, candidate: _Candidate) -> None:
        candidates = self._candidates[task_type]
        candidates.append(candidate)
        if not candidate[2].is_driven:
            self.with_runs.add(task_type)
        wanted = self.wanted[task_type] = self.wanted.get(task_type, 0) + candidate[3]
        if wanted >= self._most[task_type] and len(candidates) >= OFFERS_COMPARED_MAX:
            self._open.discard(task_type)


def _unchecked(others: Sequence[Offer], hands: Iterable[Hand]) -> list[Hand]:
    """Return those whose workers nobody has looked at yet, and that get nothing."""
    served = {hand.offer_id for hand in hands}
    unchecked = [each for each in others if not each.is_checked and each.id not in served]
    return [_hand(offer, 0, 0) for offer in unchecked]


def _hand(offer: Offer, credit: int, room_bytes: int) -> Hand:
    is_new = not offer.is_checked
    return Hand(
        offer_id=offer.id,
        receiver_id=offer.receiver_id,
        namespace=offer.group[0],
        queue=offer.group[1],
        types=offer.types,
        credit=credit,
        window=offer.window,
        session_no=offer.session_no,
        times=offer.times,
        is_new=is_new,
        is_counted=offer.is_counted,
        worker_version=offer.worker_version,
        speaker=offer.speaker if is_new else None,
        room_bytes=room_bytes,
        takes_runs=not offer.is_driven,
    )
