"""Play random programs, and look whether a re-run of their journal takes the same way."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from tenure.sdk.workflow.definition import Workflow
from tenure.sdk.workflow.ending import Ending, Raised, Returned
from tenure.sdk.workflow.journal import Entry, Kind
from tests.sdk.workflow import program
from tests.sdk.workflow.model import Model


def outcome(ending: Ending | None) -> Any:
    """Return what can be compared of an ending."""
    if isinstance(ending, Returned):
        return ending.value
    assert isinstance(ending, Raised), ending
    return type(ending.error).__name__


Make = Callable[[int], Workflow[..., list[str]]]
"""Makes the program of a seed: an async function, or a plain one."""


def played(seed: int, *, crashes: bool, make: Make = program.make) -> Model:
    """Play a program with signals, perhaps a cancel, and perhaps a crash after every entry."""
    model = Model(make(seed), seed=seed, code=program.CODE)
    chance = random.Random(f"world {seed}")
    for number in range(chance.randrange(4)):
        at_ms = model.now_ms + chance.randrange(3_000)
        model.at(at_ms, functools.partial(model.signal, "ping", number))
    if chance.random() < 0.3:
        model.at(model.now_ms + chance.randrange(3_000), model.cancel)

    def crash(_entry: Entry) -> None:
        if crashes and model.holder is not None:
            model.crash()

    def spawned() -> None:
        if crashes and chance.random() < 0.3:
            model.crash()

    model.on_recorded = crash
    model.on_spawned = spawned
    model.play()
    assert not model.repeated
    assert not model.children.repeated
    assert outcome(model.ending) != program.WrongValue.__name__
    return model


class Recording(msgspec.Struct):
    """What is left of a program that was played: its last generation, and how it ended."""

    outcome: Any
    arguments: dict[str, Any]
    generation: int
    journal: list[Entry]
    results: dict[str, list[Entry]]
    # What the body had left behind when it ended.
    left_open: list[str]

    def resumed(self, seed: int, make: Make, *, length: int, chance: int) -> Model:
        """Return a model that has the beginning of the journal, and the results in it."""
        model = Model(make(seed), seed=chance, code=program.CODE)
        model.arguments = self.arguments
        model.identity = replace(model.identity, generation=self.generation)
        model.journal = [replace(each) for each in self.journal[:length]]
        ended = {each.key for each in model.journal if each.kind is Kind.GROUP}
        model.children.take_over({key: self.results[key] for key in ended})
        return model


def recorded(model: Model) -> Recording:
    """Return what is left of a program that was played."""
    results = {key: [*group.ends.values()] for key, group in model.children.groups.items()}
    generation = model.identity.generation
    end = outcome(model.ending)
    left_open = [each.made.key for each in model.children.by_id.values() if each.is_open]
    return Recording(end, model.arguments, generation, model.journal, results, left_open)


def check_again(seed: int, first: Recording, make: Make = program.make) -> None:
    """Re-run a whole journal: it comes to the same end, and nothing is executed again."""
    again = first.resumed(seed, make, length=len(first.journal), chance=seed + 1)
    again.play()
    assert outcome(again.ending) == first.outcome
    assert not again.executions
    # A recording has no open children: calls of those make them again, and they may end.
    assert {each.key for each in again.journal[len(first.journal) :]} <= {*first.left_open}
    assert again.children.calls <= {*first.left_open}


def go_on(seed: int, first: Recording, make: Make = program.make) -> None:
    """Go on from the beginning of a journal: the code fits it, and each call gets its own value."""
    model = first.resumed(seed, make, length=len(first.journal) // 2, chance=seed + 2)
    # A body may wait for a signal that is not in this part.
    for number in range(4):
        model.at(model.now_ms + 10_000, functools.partial(model.signal, "ping", number))
    model.play()
    assert outcome(model.ending) != program.WrongValue.__name__
