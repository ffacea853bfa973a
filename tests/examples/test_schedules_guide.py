"""The guide to schedules: what it shows runs, and what it names exists."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from tenure import Client
from tenure.cli.show.schedule_table import columns
from tenure.core.schedule.record import Overlap, SkipReason
from tenure.sdk.client.schedule import Schedule
from tenure.testing import TestEngine
from tests.examples.stage import FOLDER

PAGE: Final = (FOLDER.parent / "docs/guide/schedules.md").read_text()
FIRST, OTHERS, CHANGES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def table(heading: str) -> list[list[str]]:
    """Return the cells of the table below a row of headings."""
    _, _, rest = PAGE.partition(f"| {heading}")
    lines = rest.split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]


def names(heading: str) -> set[str]:
    """Return what stands in backticks in the first column of a table."""
    return {name for row in table(heading) for name in re.findall(r"`([^`]+)`", row[0])}


@pytest.fixture
def shown(engine: TestEngine) -> dict[str, Any]:
    """Return what the page defines; its clients are those of the test."""
    scope: dict[str, Any] = {"__name__": "nightly", "datetime": datetime, "UTC": UTC}
    exec(FIRST, scope)  # noqa: S102 (ours)
    scope["Client"] = engine.client
    exec(OTHERS.replace("client: Client", "client"), scope)  # noqa: S102 (ours)
    exec(CHANGES.replace("client: Client", "client"), scope)  # noqa: S102 (ours)
    return scope


async def test_the_first_schedule_of_the_guide_fires_each_night(
    engine: TestEngine, engine_client: Client, shown: dict[str, Any]
) -> None:
    await shown["deploy"]()
    await shown["deploy"]()
    (info,) = [each async for each in engine_client.schedules.list()]
    assert (info.id, info.schedule.overlap) == ("nightly-report", "skip")
    async with engine.worker([shown["report"]]):
        await engine.advance("2d")
        fires = [each async for each in engine_client.schedules.fires("nightly-report")]
        results = [engine_client.handle(each.task_id, result=str) for each in fires]
        assert [await each.result(timeout="1m") for each in results] == [
            f"north, the day before {each.at:%Y-%m-%d}" for each in fires
        ]
    assert len(fires) == 2
    (first, *_) = fires
    assert re.fullmatch(r"schedule:nightly-report:\S+Z", first.key)
    assert re.search(r"`schedule:nightly-report:\S+Z`", PAGE)


async def test_others_are_removed_as_the_guide_shows(
    engine_client: Client, shown: dict[str, Any]
) -> None:
    for name in ("nightly-report", "old"):
        await engine_client.schedules.put(name, Schedule(every="1h"), shown["report"], "north")
    await shown["remove_others"](engine_client)
    assert [each.id async for each in engine_client.schedules.list()] == ["nightly-report"]


async def test_a_schedule_is_paused_triggered_and_backfilled_as_the_guide_shows(
    engine: TestEngine,
    engine_client: Client,
    shown: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    await shown["deploy"]()
    await shown["move_the_database"](engine_client)
    async with engine.worker([shown["report"]]):
        await engine.advance_until(shown["again"](engine_client))
        assert "north, the day before" in capsys.readouterr().out
        await shown["january"](engine_client)
        assert capsys.readouterr().out == "31 fired, 0 had fired before\n"
        await shown["january"](engine_client)
        assert capsys.readouterr().out == "0 fired, 31 had fired before\n"


def test_the_tables_name_what_there_is_and_nothing_else() -> None:
    assert names("reason | why") == {each.value for each in SkipReason}
    assert names("`overlap` | if") == {each.value for each in Overlap}
    settings = names("setting | default")
    assert settings <= {*Schedule.__struct_fields__}
    for name in re.findall(r"`(\w+)=", PAGE):
        assert name in {*Schedule.__struct_fields__, "mode", "trigger_id"}, name


def test_the_list_looks_as_it_is_shown() -> None:
    (header,) = [line for line in PAGE.splitlines() if line.startswith("SCHEDULE ")]
    assert {*header.split()} <= {column.header for column in columns(0)}
