"""The engine's rate beside concurrent commits on PostgreSQL, with and without listeners.

A NOTIFY inside a transaction makes concurrent commits queue up behind each other. The engine tells
other replicas from a side connection, coalesced. Here tasks also come into a queue that nobody
serves, so that it does tell, all the time, and eight other connections commit all the time. With
listeners there is a second replica besides, and the eight listen too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from benchmarks.context import Context
from benchmarks.database import FIXTURE, Connection, PostgresDatabase
from benchmarks.flow import open_callers
from benchmarks.load import CLOCK, INPUT, NAMESPACE, SPEC, TYPE, open_engine
from tenure.core.task.record import NewTask
from tenure.engine.engine import Engine
from tenure.engine.task import command as c
from tenure.store.postgres import schema

COMMITTERS = 8
PAUSE_SECONDS = 0.005
UNSERVED_QUEUE = "unserved"


@dataclass
class Bystanders:
    """Other connections that commit, and hear what is told."""

    commit_count: int = 0
    heard: list[object] = field(default_factory=list)

    async def commit(self, connection: Connection, number: int) -> None:
        """Commit small transactions until cancelled."""
        update = "UPDATE bystander SET number = number + 1 WHERE id = $1"
        while True:
            await connection.execute(update, number)
            self.commit_count += 1
            await asyncio.sleep(PAUSE_SECONDS)

    async def enqueue(self, engine: Engine) -> None:
        """Put tasks where nobody takes them, until cancelled."""
        while True:
            new = NewTask(
                id=CLOCK.new_id(), type=TYPE, queue=UNSERVED_QUEUE, spec=SPEC, input=INPUT
            )
            await engine.submit(c.EnqueueTasks(namespace=NAMESPACE, tasks=(new,)))
            await asyncio.sleep(PAUSE_SECONDS)

    def hear(self, *notification: object) -> None:
        """Note what a listener hears."""
        self.heard.append(notification[-1])


async def run(context: Context) -> dict[str, float]:
    """Measure with and without listeners in turns."""
    best: dict[str, float] = {}
    for _ in range(context.scale.round_count):
        for name, listens in (("alone", False), ("heard", True)):
            measured = await _measure(context.postgres(), context.scale.seconds, listens=listens)
            for measure, value in measured.items():
                key = f"{name}_{measure}"
                best[key] = max(value, best.get(key, value))
    numbers = {
        "postgres.rate": best["heard_rate"],
        "postgres.rate.floor": best["alone_rate"],
        "postgres.rate_ratio": best["heard_rate"] / best["alone_rate"],
        "postgres.commit_rate": best["heard_commit_rate"],
        "postgres.commit_rate.floor": best["alone_commit_rate"],
        "postgres.commit_rate_ratio": best["heard_commit_rate"] / best["alone_commit_rate"],
        "postgres.told_per_s": best["heard_told_per_s"],
    }
    for name, value in numbers.items():
        context.report(name, value)
    return numbers


async def _measure(
    database: PostgresDatabase, seconds: float, *, listens: bool
) -> dict[str, float]:
    bystanders = Bystanders()
    engine = await open_engine(database.store())
    async with contextlib.AsyncExitStack() as stack:
        if listens:
            replica = Engine(database.store(), clock=CLOCK)
            await replica.start()
            stack.push_async_callback(replica.stop)
        await stack.enter_async_context(
            _open_bystanders(database, engine, bystanders, listens=listens)
        )
        callers = await stack.enter_async_context(open_callers(engine))
        commits, heard = bystanders.commit_count, len(bystanders.heard)
        flow = await callers.run_for(seconds)
        commits, heard = bystanders.commit_count - commits, len(bystanders.heard) - heard
    await engine.stop()
    assert heard or not listens, "nobody heard of the tasks that nobody serves"
    return {
        "rate": flow.rate,
        "commit_rate": commits / flow.seconds,
        "told_per_s": heard / COMMITTERS / flow.seconds,
    }


@contextlib.asynccontextmanager
async def _open_bystanders(
    database: PostgresDatabase, engine: Engine, bystanders: Bystanders, *, listens: bool
) -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as stack:
        connections = [
            await stack.enter_async_context(database.connect()) for _ in range(COMMITTERS)
        ]
        await connections[0].execute(FIXTURE["create_bystander"])
        if listens:
            for connection in connections:
                await connection.add_listener(schema.channel_in(schema.DEFAULT), bystanders.hear)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(bystanders.enqueue(engine)),
                *(
                    group.create_task(bystanders.commit(connection, number))
                    for number, connection in enumerate(connections)
                ),
            ]
            yield
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if listens:
            for connection in connections:
                await connection.remove_listener(schema.channel_in(schema.DEFAULT), bystanders.hear)
