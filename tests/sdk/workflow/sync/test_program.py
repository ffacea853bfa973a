"""Random plain programs go on after a crash behind every entry; a re-run takes the same way."""

from __future__ import annotations

import functools
import threading
from typing import Any

import pytest

from tenure.sdk.workflow import children
from tenure.sdk.workflow.journal import Entry
from tenure.sdk.workflow.results import GroupPages
from tenure.sdk.workflow.run import Run
from tenure.sdk.workflow.sync import body_thread
from tests.sdk.workflow.model import IDENTITY, Stuck
from tests.sdk.workflow.play import check_again, go_on, played, recorded
from tests.sdk.workflow.sync.program import make


@pytest.fixture(autouse=True)
def _small_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the items of a map go in several reports."""
    monkeypatch.setattr(children, "SPAWN_CHILDREN_MAX", 2)


@pytest.mark.parametrize("crashes", [False, True], ids=["calm", "crashes"])
@pytest.mark.parametrize("seed", range(100))
def test_a_plain_program_takes_the_same_way_again(seed: int, crashes: bool) -> None:
    first = played(seed, crashes=crashes, make=make)
    check_again(seed, recorded(first), make)
    go_on(seed, recorded(first), make)

    name = f"tenure-body-{IDENTITY.run_id}"
    assert not [each for each in threading.enumerate() if each.name == name]


@pytest.mark.parametrize("seed", range(20))
def test_it_does_not_matter_when_others_have_their_turn(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns_s = (-1.0, 60.0) if seed % 2 else (60.0, -1.0)
    monkeypatch.setattr(body_thread, "_TURN_S", turns_s[0])
    first = recorded(played(seed, crashes=True, make=make))
    monkeypatch.setattr(body_thread, "_TURN_S", turns_s[1])
    check_again(seed, first, make)


def deliver_two(run: Run, entry: Entry) -> None:
    """Deliver two entries while the body is quiescent once."""
    _deliver(run, entry)
    if (second := run.journal.take_next()) is not None:
        _deliver(run, second)


def deliver_beside_pages(pages: GroupPages) -> bool | None:
    """Deliver entries while the body waits for a page."""
    return _deliver_page(pages) or None


_deliver = Run._deliver  # noqa: SLF001 (for a mutant)
_deliver_page = GroupPages.deliver


@pytest.mark.parametrize(
    ("of", "name", "mutant"),
    [(Run, "_deliver", deliver_two), (GroupPages, "deliver", deliver_beside_pages)],
)
def test_the_plain_programs_notice_a_mistake(
    of: type, name: str, mutant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of, name, mutant)

    assert any(is_noticed(seed) for seed in range(150))


def is_noticed(seed: int) -> bool:
    """Tell whether a program of this seed finds that something is wrong."""
    try:
        first = played(seed, crashes=True, make=functools.partial(make, depth=3))
        check_again(seed, recorded(first), make)
    except (AssertionError, Stuck):
        return True
    return False
