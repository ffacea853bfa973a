"""Four weeks on the manual clock: with all mails, and with fewer."""

from __future__ import annotations

import pytest

from examples import drip_campaign
from examples.drip_campaign import drip, unsubscribe
from tenure.testing import TestEngine, assert_survives
from tests.examples.stage import Stage


@pytest.fixture
def outbox(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    sent: list[str] = []

    def send(address: str, template: str) -> None:
        sent.append(f"{template} {address}")

    monkeypatch.setattr(drip_campaign, "send", send)
    return sent


def test_the_script_shows_four_weeks_in_a_moment(stage: Stage) -> None:
    said = stage.run("drip_campaign.py")
    # Two runs wake up at the same instant, in any order.
    assert [*sorted(said[:2]), *sorted(said[2:4]), *said[4:]] == [
        *("hello to ann@example.org", "hello to bob@example.org"),
        *("tips to ann@example.org", "tips to bob@example.org"),
        "mails to bob: 2",
        "offer to ann@example.org",
        "mails to ann: 3",
    ]


async def test_three_mails_are_sent_in_four_weeks(engine: TestEngine, outbox: list[str]) -> None:
    async with engine.worker([drip]):
        run = await engine.start(drip, "ann")
        await engine.advance("27d")
        assert outbox == ["hello ann", "tips ann"]
        await engine.advance("1d")
        assert outbox == ["hello ann", "tips ann", "offer ann"]
        assert await run.result() == 3


async def test_who_unsubscribes_gets_no_more_mails(engine: TestEngine, outbox: list[str]) -> None:
    async with engine.worker([drip]):
        run = await engine.start(drip, "ann")
        await engine.advance("2d")
        await run.signal(unsubscribe)
        assert await run.result() == 1
        await engine.advance("28d")
    assert outbox == ["hello ann"]


async def test_the_campaign_survives_a_crash_at_every_point(
    engine: TestEngine, outbox: list[str]
) -> None:
    assert await assert_survives(drip, "ann", engine=engine) == 3
    assert set(outbox) == {"hello ann", "tips ann", "offer ann"}
