"""Where a task stands in runs."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core.run.record import NO_ORIGIN, Origin, RunLink, encode_origin
from tests.core.task.tasks import fresh

ORIGIN = Origin(run_id="parent", key="1/ship", index=2, root_run_id="root", step_key="a:0:1/ship")


def test_a_child_knows_its_run_and_its_call() -> None:
    link = RunLink(parent_id="parent", origin=encode_origin(ORIGIN))
    assert replace(fresh(), link=link).place == ORIGIN


def test_what_no_run_has_made_has_no_place() -> None:
    task = fresh()
    assert task.place is NO_ORIGIN
    assert replace(task, link=RunLink(journal_id="journal")).place is NO_ORIGIN


def test_a_damaged_place_tells_nothing() -> None:
    link = RunLink(parent_id="parent", origin=b"\xc1")
    assert replace(fresh(), link=link).place is NO_ORIGIN
