"""Random programs go on after a crash behind every entry, and a re-run takes the same way."""

from __future__ import annotations

import pytest

from tenure.sdk.workflow.journal import Entry
from tenure.sdk.workflow.run import Run
from tests.sdk.workflow.model import Stuck
from tests.sdk.workflow.play import check_again, go_on, outcome, played


@pytest.mark.parametrize("crashes", [False, True], ids=["calm", "crashes"])
@pytest.mark.parametrize("seed", range(200))
def test_a_program_takes_the_same_way_again(seed: int, crashes: bool) -> None:
    first = played(seed, crashes=crashes)
    check_again(seed, first.journal, outcome(first.ending))
    go_on(seed, first.journal[: len(first.journal) // 2])


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
        first = played(seed, crashes=True)
        check_again(seed, first.journal, outcome(first.ending))
    except (AssertionError, Stuck):
        return True
    return False
