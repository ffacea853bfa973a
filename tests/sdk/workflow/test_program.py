"""Random programs go on after a crash behind every entry, and a re-run takes the same way."""

from __future__ import annotations

import functools
import random
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.sdk.workflow.ending import Ending, Raised, Returned
from tenure.sdk.workflow.journal import Entry
from tenure.sdk.workflow.run import Run
from tests.sdk.workflow import program
from tests.sdk.workflow.model import Model, Stuck


def outcome(ending: Ending) -> Any:
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
    return model


@pytest.mark.parametrize("crashes", [False, True], ids=["calm", "crashes"])
@pytest.mark.parametrize("seed", range(200))
def test_a_program_takes_the_same_way_again(seed: int, crashes: bool) -> None:
    first = played(seed, crashes=crashes)
    again = Model(program.make(seed), seed=seed + 1)
    again.journal = [replace(each) for each in first.journal]
    again.play()

    assert first.ending is not None
    assert again.ending is not None
    assert outcome(again.ending) == outcome(first.ending)
    assert len(again.journal) == len(first.journal)
    assert not again.executions
    assert not first.repeated


def test_the_programs_notice_entries_that_are_delivered_without_quiescence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def deliver_two(run: Run, entry: Entry) -> None:
        deliver(run, entry)
        if (second := run.journal.take_next()) is not None:
            deliver(run, second)

    deliver = Run._deliver  # noqa: SLF001 (a mutant)
    monkeypatch.setattr(Run, "_deliver", deliver_two)

    assert any(is_noticed(seed) for seed in range(50))


def is_noticed(seed: int) -> bool:
    """Tell whether a program of this seed finds that something is wrong."""
    try:
        test_a_program_takes_the_same_way_again(seed, crashes=True)
    except (AssertionError, Stuck):
        return True
    return False
