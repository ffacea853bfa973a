"""Class-based activities with an injected client."""

from __future__ import annotations

import signal

from examples.shared_client import Report, WeatherActivities
from tenure import Client, SyncClient
from tenure.testing import TestEngine
from tests.examples.stage import Stage


class FakeSource:
    """What a test injects instead of the weather."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def temperature(self, city: str) -> float:
        self.asked.append(city)
        return -40.0


async def test_another_source_is_injected_without_touching_the_activities(
    engine: TestEngine, engine_client: Client
) -> None:
    source = FakeSource()
    async with engine.worker([WeatherActivities(source, unit="degrees")]):
        found = await engine_client.run(WeatherActivities.report, "Yakutsk")
        assert found == Report("Yakutsk", "-40.0 degrees")
        assert await engine_client.run(WeatherActivities.is_freezing, "Yakutsk")
        alias = await engine_client.enqueue_named(
            "frost", {"city": "Yakutsk"}, result=bool, start_to_close="10s"
        )
        assert await alias.result()
    assert source.asked == ["Yakutsk"] * 3


def test_the_script_is_a_worker_that_drains_when_it_is_told_to(
    stage: Stage, client: SyncClient
) -> None:
    with stage.script("shared_client.py") as script:
        assert client.run(WeatherActivities.report, "Oslo") == Report("Oslo", "-3.5 °C")
        assert client.run(WeatherActivities.is_freezing, "Rome") is False
        script.process.send_signal(signal.SIGTERM)
        assert script.end() == []
