"""Random programs go on after a crash behind every entry, and a re-run takes the same way."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenure.sdk.workflow import children
from tenure.sdk.workflow.child import GroupCall
from tenure.sdk.workflow.journal import Entry, Journal, Kind, OpenCall
from tenure.sdk.workflow.results import GroupPages
from tenure.sdk.workflow.run import Run
from tests.sdk.workflow.model import Stuck
from tests.sdk.workflow.play import check_again, go_on, played, recorded


@pytest.fixture(autouse=True)
def _small_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the items of a map go in several reports."""
    monkeypatch.setattr(children, "SPAWN_CHILDREN_MAX", 2)


@pytest.mark.parametrize("crashes", [False, True], ids=["calm", "crashes"])
# The last two broke the model of a server once, and what a re-run is compared with.
@pytest.mark.parametrize("seed", [*range(200), 2994, 8546])
def test_a_program_takes_the_same_way_again(seed: int, crashes: bool) -> None:
    first = played(seed, crashes=crashes)
    check_again(seed, recorded(first))
    go_on(seed, recorded(first))


def deliver_two(run: Run, entry: Entry) -> None:
    """Deliver two entries while the body is quiescent once."""
    _deliver(run, entry)
    if (second := run.journal.take_next()) is not None:
        _deliver(run, second)


def forget_open(_journal: Journal, _call: OpenCall) -> None:
    """Make an open child again."""


def adopt_too_many(call: GroupCall, known: OpenCall) -> None:
    """Go on with a map behind an item that is not stored."""
    _adopt(call, replace(known, spawned=min(known.spawned + 1, known.total)))


def record_late(run: Run, patch: str, line: str) -> bool:
    """Record a patch when the body has gone on."""
    known = run.journal.has_note(Kind.PATCH, patch) or run.journal.is_met
    if known:
        entry = Entry(Kind.PATCH, patch, line=line)
        run.loop.call_later(0.05, lambda: run._record(entry))  # noqa: SLF001 (a mutant)
    return known


def deliver_beside_pages(pages: GroupPages) -> bool | None:
    """Deliver entries while the body waits for a page."""
    return _deliver_page(pages) or None


_deliver = Run._deliver  # noqa: SLF001 (for a mutant)
_adopt = GroupCall.adopt
_deliver_page = GroupPages.deliver


@pytest.mark.parametrize(
    ("of", "name", "mutant"),
    [
        (Run, "_deliver", deliver_two),
        (Journal, "add_open", forget_open),
        (GroupCall, "adopt", adopt_too_many),
        (Run, "patched", record_late),
        (GroupPages, "deliver", deliver_beside_pages),
    ],
)
def test_the_programs_notice_a_mistake(
    of: type, name: str, mutant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of, name, mutant)

    assert any(is_noticed(seed) for seed in range(150))


def is_noticed(seed: int) -> bool:
    """Tell whether a program of this seed finds that something is wrong."""
    try:
        first = played(seed, crashes=True)
        check_again(seed, recorded(first))
    except (AssertionError, Stuck):
        return True
    return False
