"""The plain function: bought, reminded, cancelled, and killed at every point."""

from __future__ import annotations

from typing import Any

import pytest

from examples import purchase as example
from examples.purchase import delivered, purchase
from tenure import RunHandle, SyncClient, TaskCancelled
from tenure.testing import TestEngine, assert_survives
from tests.examples.stage import Stage
from tests.polling import eventually_sync

ACTIVITIES = [example.ask_near, example.ask_far, example.order, example.cancel]


def test_what_was_ordered_is_there_after_its_signal(stage: Stage, client: SyncClient) -> None:
    with stage.worker("purchase"), stage.script("purchase.py", "paper", "20") as buying:
        eventually_sync(lambda: buying.lines)
        client.run_handle(buying.lines[0]).signal(delivered)
        assert buying.end()[-1] == "order at the far shop for paper is here"


async def test_somebody_is_reminded_after_a_week(
    engine: TestEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    async with engine.worker([purchase, *ACTIVITIES]):
        run = await engine.start(purchase, "paper", 20)
        await engine.advance("6d")
        assert "where is it?" not in capsys.readouterr().out
        await engine.advance("2d")
        assert "where is it? order at the far shop for paper" in capsys.readouterr().out
        await run.signal(delivered)
        assert await engine.advance_until(run.result()) == "order at the far shop for paper is here"


async def test_a_cancelled_purchase_is_cancelled_there(
    engine: TestEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    async with engine.worker([purchase, *ACTIVITIES]):
        run = await engine.start(purchase, "paper", 20)
        await engine.advance("1d")
        await run.cancel("not needed")
        with pytest.raises(TaskCancelled, match="not needed"):
            await engine.advance_until(run.result())
    assert "cancelled: order at the far shop for paper" in capsys.readouterr().out


async def test_a_supplier_that_does_not_answer_is_not_waited_for(engine: TestEngine) -> None:
    # Nobody asks the other one.
    near = [each for each in ACTIVITIES if each is not example.ask_far]
    async with engine.worker([purchase, *near]):
        run = await engine.start(purchase, "paper", 20)
        await engine.advance("2h")
        await run.signal(delivered)
        assert (
            await engine.advance_until(run.result()) == "order at the near shop for paper is here"
        )


async def test_a_purchase_survives_a_crash_at_every_point(engine: TestEngine) -> None:
    async def arrive(run: RunHandle[Any]) -> None:
        await run.signal(delivered)

    ended = await assert_survives(purchase, "paper", 20, engine=engine, code=ACTIVITIES, act=arrive)
    assert ended == "order at the far shop for paper is here"
