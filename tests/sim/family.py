"""What runs with children do: stories that follow from their input and their journal alone."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from hashlib import blake2b
from random import Random
from typing import Final, Literal

import msgspec

from tenure.core.journal.entry import Entry, EntryKind
from tenure.core.run.record import ClosePolicy

TYPE: Final = "family"
_POLICIES: Final = (
    ClosePolicy.CANCEL,
    ClosePolicy.CANCEL,
    ClosePolicy.TERMINATE,
    ClosePolicy.ABANDON,
)
CallKind = Literal["task", "run", "group"]
Verdict = Literal["returns", "fails", "continues", "is cancelled"]


class Plan(msgspec.Struct, frozen=True):
    """Which story a run tells: how deep its family is, and how often it begins anew."""

    seed: int
    depth: int
    rounds: int = 0


class Call(msgspec.Struct, frozen=True):
    """A call of a story; ``is_given_up`` if its child is cancelled once the story goes on.

    A slow child begins long after others have ended: somebody has to close it.
    """

    kind: CallKind
    key: str
    index: int
    policy: ClosePolicy
    size: int = 0
    fails_fast: bool = False
    is_given_up: bool = False
    is_slow: bool = False


class Stage(msgspec.Struct, frozen=True):
    """Calls that are made together; the story goes on when so many of them have ended."""

    calls: tuple[Call, ...]
    needed: int


def drawn(random: Random) -> bytes:
    """Draw the input of a run that nobody has made."""
    return encoded(
        Plan(random.randrange(10**6), random.choice([0, 1, 1, 2]), random.choice([0, 0, 1, 2]))
    )


def encoded(plan: Plan) -> bytes:
    """Return the input of a run."""
    return msgspec.json.encode(plan)


@functools.lru_cache(maxsize=512)
def _stages(seed: int, depth: int) -> tuple[Stage, ...]:
    random = Random(f"{seed} {depth}")
    stages, index = [], 0
    for _ in range(random.choice([1, 1, 2, 3])):
        calls: list[Call] = []
        waits_for_all = random.random() < 0.5
        for _ in range(random.choice([0, 1, 1, 2, 3])):
            kind: CallKind = random.choice(["task", "group", "group", "run" if depth else "task"])
            calls.append(
                Call(
                    kind,
                    f"{kind}#{index}",
                    index,
                    random.choice(_POLICIES),
                    size=random.choice([0, 1, 2, 3, 5]),
                    fails_fast=random.random() < 0.4,
                    is_given_up=random.random() < 0.3,
                    is_slow=kind == "task" and not calls and not waits_for_all,
                )
            )
            index += 1
        stages.append(Stage(tuple(calls), len(calls) if waits_for_all else len(calls) // 2))
    return tuple(stages)


class Story:
    """Where a run is in its story after some entries; the same for whoever tells it."""

    def __init__(self, given: bytes) -> None:
        self.plan = msgspec.json.decode(given, type=Plan)
        self._stages = _stages(self.plan.seed, self.plan.depth)
        self._stage = 0
        self.seen = 0
        self.ended: dict[str, str] = {}
        self._signals: list[int] = []
        self.verdict: Verdict | None = None
        self._go_on()

    def tell(self, entries: Iterable[Entry]) -> None:
        """Take entries in their order, until the story has ended."""
        for entry in entries:
            if self.verdict is not None:
                return
            assert entry.pos == self.seen + 1, f"{entry.pos} after {self.seen}"
            self.seen = entry.pos
            if entry.kind is EntryKind.CANCEL:
                self.verdict = "is cancelled"
            elif entry.kind is EntryKind.SIGNAL:
                self._signals.append(entry.pos)
            elif entry.kind in (EntryKind.CHILD, EntryKind.GROUP):
                content = entry.content
                counts = (content.total, content.succeeded, content.failed, content.cancelled)
                self.ended[entry.key] = f"{content.state} {counts} {content.output!r}"
                self._go_on()

    def _go_on(self) -> None:
        while self._stage < len(self._stages):
            stage = self._stages[self._stage]
            if sum(call.key in self.ended for call in stage.calls) < stage.needed:
                return
            self._stage += 1
        if self.plan.rounds:
            self.verdict = "continues"
        else:
            self.verdict = "fails" if Random(f"end {self.plan.seed}").random() < 0.2 else "returns"

    @property
    def calls(self) -> list[Call]:
        """Return what has been called and has not ended."""
        made = [call for stage in self._stages[: self._stage + 1] for call in stage.calls]
        return [call for call in made if call.key not in self.ended]

    @property
    def given_up(self) -> list[Call]:
        """Return what shall end, because the story has gone on without it."""
        passed = [call for stage in self._stages[: self._stage] for call in stage.calls]
        return [call for call in passed if call.is_given_up and call.key not in self.ended]

    @property
    def untaken(self) -> tuple[int, ...]:
        """Return the signals that nobody has taken: every second one."""
        return tuple(self._signals[1::2])

    @property
    def output(self) -> bytes:
        """Return what comes of it: all that it has heard, in its order."""
        return msgspec.json.encode([self.plan.seed, self.ended])

    @property
    def next_input(self) -> bytes:
        """Return with what it begins anew."""
        plan = self.plan
        return encoded(Plan(plan.seed + 1, plan.depth, plan.rounds - 1))

    def patience(self) -> tuple[int, int]:
        """Return how many entries it waits for, and how long after the first."""
        return self.plan.seed % 3 + 1, 50 * (self.plan.seed % 5)


def child_id(run_id: str, generation: int, begun_at_ms: int, key: str, item: int) -> str:
    """Return the id of a child, the same in each attempt."""
    at = f"{begun_at_ms:012x}"
    tail = blake2b(f"{run_id}:{generation}:{key}:{item}".encode(), digest_size=6).hexdigest()
    return f"{at[:8]}-{at[8:]}-7000-8000-{tail}"
