"""Servers that want to store the same unique key at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tenure.engine.access.command import CreateNamespace, SetQueue
from tenure.engine.engine import Engine
from tenure.errors import AlreadyExists
from tests.engine.world import NAMESPACE, QUEUE, World

ROUNDS = 20
Ask = Callable[[World, Engine, int], Awaitable[object]]


async def register(world: World, engine: Engine, number: int) -> object:
    return (await world.register(engine, name=f"mailer-{number}")).worker.name


async def set_queue(_world: World, engine: Engine, number: int) -> object:
    name = f"{QUEUE}-{number}"
    return await engine.submit(SetQueue(namespace=NAMESPACE, name=name, concurrency_max=1))


async def create_namespace(_world: World, engine: Engine, number: int) -> object:
    try:
        return await engine.submit(CreateNamespace(name=f"race/{number}"))
    except AlreadyExists:
        return f"race/{number}"


@pytest.mark.parametrize("dialect", ["postgres"])
@pytest.mark.parametrize("ask", [register, set_queue, create_namespace])
async def test_a_lost_race_for_a_key_is_never_the_mistake_of_who_asks(
    world: World, ask: Ask
) -> None:
    engines = [await world.start() for _ in range(4)]
    for number in range(ROUNDS):
        asked = [ask(world, each, number) for each in engines]
        answers = await asyncio.gather(*asked)
        assert len(answers) == len(asked)
