"""A report for each night: planned, late, and backfilled."""

from __future__ import annotations

from datetime import timedelta
from zoneinfo import ZoneInfo

from examples.nightly_report import NIGHTLY, report
from tenure import Client
from tenure.testing import TestEngine
from tests.examples.stage import Stage


async def test_three_nights_have_three_reports(engine: TestEngine, engine_client: Client) -> None:
    await engine_client.schedules.put("nightly", NIGHTLY, report, "north")
    async with engine.worker([report]):
        await engine.advance("3d")
        fires = [each async for each in engine_client.schedules.fires("nightly")]
        assert len(fires) == 3
        for fire in fires:
            local = fire.at.astimezone(ZoneInfo("Europe/Berlin"))
            assert (local.hour, local.minute, fire.lateness) == (2, 0, timedelta())
            done = await engine_client.handle(fire.task_id, result=str).result(timeout="1m")
            assert done == f"sales of north on {local.date() - timedelta(days=1)}"


def test_the_script_backfills_once(stage: Stage) -> None:
    with stage.worker("nightly_report"):
        first = stage.run("nightly_report.py")
        assert first == [
            "nightly-report is active",
            *(f"sales of north on {day}" for day in ("2025-12-31", "2026-01-01", "2026-01-02")),
        ]
        assert stage.run("nightly_report.py") == first[:1]
