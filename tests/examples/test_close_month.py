"""Parent and children: one shop fails, and crashes at every point."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples import close_month as example
from examples.close_month import Report, add_up, close_month, close_shop, page_someone
from tenure.testing import TestEngine, assert_survives
from tests.examples.stage import Stage

CODE = [close_shop, add_up, page_someone]
REPORTS = [Report("cph", 12_000), Report("oslo", 16_000)]


@pytest.fixture
def paged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "paged.txt"
    monkeypatch.setattr(example, "PAGED", path)
    return path


def said_to(paged: Path) -> str:
    """Return which shops somebody was called for."""
    return paged.read_text() if paged.exists() else ""


def test_the_script_prints_the_reports_and_pages_for_the_failed_shop(stage: Stage) -> None:
    with stage.worker("close_month"):
        said = stage.run("close_month.py", "2026-04", "cph", "closed", "oslo")
    assert said == ["Report(shop='cph', cents=12000)", "Report(shop='oslo', cents=16000)"]
    assert (stage.folder / "paged.txt").read_text() == "closed"


async def test_a_child_can_be_found_by_the_id_that_its_parent_gave_it(
    engine: TestEngine, paged: Path
) -> None:
    async with engine.worker([close_month, close_shop]):
        parent = await engine.start(close_month, "2026-04", ["cph"])
        await engine.advance("1m")
        child = engine.client().run_handle("external:close-cph-2026-04", result=Report)
        assert (await child.describe()).parent_id == parent.run_id
        async with engine.worker([add_up]):
            assert await engine.advance_until(parent.result()) == REPORTS[:1]
        assert await child.result() == REPORTS[0]
    assert said_to(paged) == ""


async def test_it_survives_a_crash_at_every_point(engine: TestEngine, paged: Path) -> None:
    ended = await assert_survives(
        close_month, "2026-04", ["cph", "closed", "oslo"], engine=engine, code=CODE
    )
    assert ended == REPORTS
    assert said_to(paged) == "closed"
