"""Activities as methods: one instance carries the clients and settings they share.

``python shared_client.py`` starts the worker; from anywhere the class itself is the reference, and
its types are checked: ``client.run(WeatherActivities.report, "Oslo")``.
"""

import asyncio
from dataclasses import dataclass
from typing import Protocol

from tenure import Worker, activity


class Source(Protocol):
    """What the activities need of the outside world; a test gives another one."""

    async def temperature(self, city: str) -> float: ...


@dataclass
class Report:
    city: str
    text: str


class WeatherActivities:
    """Everything about the weather service; one external call per activity."""

    def __init__(self, source: Source, unit: str = "°C") -> None:
        self._source = source
        self._unit = unit

    @activity(start_to_close="10s")
    async def report(self, city: str) -> Report:
        return Report(city, f"{await self._source.temperature(city)} {self._unit}")

    @activity(start_to_close="10s", name="is_freezing", aliases=("frost",))
    async def is_freezing(self, city: str) -> bool:
        return await self._source.temperature(city) < 0


class Thermometer:
    """Stands for a client with a connection pool."""

    async def temperature(self, city: str) -> float:
        return {"Oslo": -3.5}.get(city, 21.0)


async def main() -> None:
    await Worker(activities=[WeatherActivities(Thermometer())]).run()


if __name__ == "__main__":
    asyncio.run(main())
