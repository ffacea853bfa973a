"""An endpoint without a network: every envelope that is sent to it, and what it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from tenure.core.endpoint.record import Endpoint, EndpointSpec
from tenure.core.endpoint.verdict import Delivery, Verdict
from tenure.core.task.record import Task
from tenure.engine.endpoint import command as c
from tenure.engine.engine import Engine
from tests.engine.world import NAMESPACE, QUEUE, World

URL: Final = "https://hook.example/tasks"
ACCEPTED: Final = Delivery(verdict=Verdict.ACCEPTED)
FAILED: Final = Delivery(verdict=Verdict.FAILED, error="no answer")


class Posted:
    """A poster whose endpoint answers what a test wants."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self.endpoints: list[Endpoint] = []
        self.answer: Callable[[Task], Delivery] = lambda _: ACCEPTED
        self.gate = asyncio.Event()
        self.gate.set()

    async def check(self, url: str) -> None:
        """Every URL is good here."""

    async def post(self, endpoint: Endpoint, task: Task) -> Delivery:
        self.tasks.append(task)
        self.endpoints.append(endpoint)
        await self.gate.wait()
        return self.answer(task)

    async def ping(self, endpoint: Endpoint) -> Delivery:
        self.endpoints.append(endpoint)
        return ACCEPTED

    def close(self) -> None:
        """Nothing is open."""

    @property
    def refs(self) -> list[tuple[str, int]]:
        return [(task.id, task.attempt) for task in self.tasks]


async def create(engine: Engine, name: str = "hook", **changes: Any) -> Endpoint:
    spec = EndpointSpec(**{"url": URL, "types": ("mail",), **changes})
    made = await engine.submit(
        c.CreateEndpoint(namespace=NAMESPACE, name=name, queue=QUEUE, spec=spec)
    )
    return made.endpoint


async def driven(world: World, **changes: Any) -> tuple[Engine, Posted, Endpoint]:
    """Return an engine that drives a new endpoint."""
    engine, posted = await world.start(), Posted()
    engine.seats.open_endpoints(posted)
    endpoint = await create(engine, **changes)
    await engine.seats.round()
    return engine, posted, endpoint


async def quiet(world: World, engine: Engine) -> None:
    """Let deliveries go out, and their results come in."""
    for _ in range(5):
        await asyncio.sleep(0)
        await world.settle(engine)
