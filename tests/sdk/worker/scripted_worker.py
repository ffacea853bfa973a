"""A worker's connection to a server that answers as the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tenure.sdk.transport.channel import Channel
from tenure.sdk.worker.connection.connection import WorkerConnection
from tenure.sdk.worker.connection.incarnation import Setup
from tenure.v1 import session_service_pb2 as pb
from tests.bounds import ANSWER_S
from tests.sdk.worker.rig import QUEUE, TYPE, FakeExecutor
from tests.sdk.worker.scripted import Script, Session, open_script


@asynccontextmanager
async def worker(
    interval_ms: int = 60_000, executor: FakeExecutor | None = None, **fields: Any
) -> AsyncIterator[tuple[Script, Session, FakeExecutor, WorkerConnection]]:
    """Connect a worker to a script and welcome its first session."""
    async with open_script(interval_ms) as (script, target):
        made = executor or FakeExecutor()
        connection, ended = connect(target, made, **fields)
        session = await script.session()
        try:
            yield script, session, made, connection
        finally:
            # Whatever the test has left open ends here; the next session is drained.
            script.end_sessions()
            await end(script, connection, ended)


def connect(
    target: str, executor: FakeExecutor | None = None, **fields: Any
) -> tuple[WorkerConnection, asyncio.Future[None]]:
    made = executor or FakeExecutor()
    setup = Setup(**{"namespace": "", "queue": QUEUE, "types": (TYPE,), **fields})
    connection = WorkerConnection([setup], Channel(target), made.attach)
    return connection, asyncio.wrap_future(connection.start())


async def end(script: Script, connection: WorkerConnection, ended: asyncio.Future[None]) -> None:
    connection.hand_back()
    draining = asyncio.ensure_future(_drain_all(script))
    async with asyncio.timeout(ANSWER_S):
        await asyncio.wait([ended])
    draining.cancel()
    await asyncio.gather(draining, return_exceptions=True)


async def _drain_all(script: Script) -> None:
    while True:
        try:
            await _drain(await script.session())
        except Exception:  # noqa: BLE001, S112 (the worker has left that stream for another)
            continue


async def _drain(session: Session) -> None:
    await session.send(drain=pb.Drain())
    while not session.over.is_set():
        frame = await session.read()
        for each in frame.finished:
            await session.ack(each.task_id, attempt=each.attempt)
        if frame.HasField("goodbye"):
            session.over.set()
