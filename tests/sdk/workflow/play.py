"""Play random programs, and look whether a re-run of their journal takes the same way."""

from __future__ import annotations

import functools
import random
from typing import Any

from msgspec.structs import replace

from tenure.sdk.workflow.ending import Ending, Raised, Returned
from tenure.sdk.workflow.journal import Entry
from tests.sdk.workflow import program
from tests.sdk.workflow.model import Model


def outcome(ending: Ending | None) -> Any:
    """Return what can be compared of an ending."""
    if isinstance(ending, Returned):
        return ending.value
    assert isinstance(ending, Raised), ending
    return type(ending.error).__name__


def played(seed: int, *, crashes: bool) -> Model:
    """Play a program with signals, perhaps a cancel, and perhaps a crash after every entry."""
    model = Model(program.make(seed), seed=seed)
    chance = random.Random(f"world {seed}")
    for number in range(chance.randrange(4)):
        at_ms = model.now_ms + chance.randrange(3_000)
        model.at(at_ms, functools.partial(model.signal, "ping", number))
    if chance.random() < 0.3:
        model.at(model.now_ms + chance.randrange(3_000), model.cancel)

    def recorded(_entry: Entry) -> None:
        if crashes and model.holder is not None:
            model.crash()

    model.on_recorded = recorded
    model.play()
    assert not model.repeated
    return model


def check_again(seed: int, journal: list[Entry], expected: Any) -> None:
    """Re-run a whole journal: it comes to the same end, and nothing is executed again."""
    again = Model(program.make(seed), seed=seed + 1)
    again.journal = [replace(each) for each in journal]
    again.play()
    assert outcome(again.ending) == expected
    assert len(again.journal) == len(journal)
    assert not again.executions


def go_on(seed: int, journal: list[Entry]) -> None:
    """Go on from the beginning of a journal: the code fits it, and each call gets its own value."""
    model = Model(program.make(seed), seed=seed + 2)
    model.journal = [replace(each) for each in journal]
    # A body may wait for a signal that is not in this part.
    for number in range(4):
        model.at(model.now_ms + 10_000, functools.partial(model.signal, "ping", number))
    model.play()
    assert outcome(model.ending) != program.WrongValue.__name__
