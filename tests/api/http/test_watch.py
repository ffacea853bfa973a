"""Watching a task as ``curl -N`` does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx

from tenure.api.http.edge.app import Edge
from tenure.api.http.operation import Gate, RequestContext
from tenure.api.http.table import OPERATIONS, Table
from tenure.api.metrics.metric import Metrics
from tenure.api.readiness import Readiness
from tenure.api.setting import ServerSettings
from tenure.engine.task import command as c
from tests.api.http.site import Site, site_of
from tests.engine.world import NAMESPACE, World
from tests.polling import eventually


async def events(answer: httpx.Response) -> AsyncIterator[tuple[str, Any]]:
    """Read events: their names and their data."""
    name, data = "", ""
    async for line in answer.aiter_lines():
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            data += value + "\n"
        elif not line and data:
            yield name, json.loads(data)
            data = ""


async def test_a_watcher_sees_states_progress_and_the_result(site: Site) -> None:
    world, engine = site.world, site.engine
    worker_id = await world.worker(engine)
    task_id = await site.enqueue(input=1)
    async with site.client.stream("GET", f"/v1/tasks/{task_id}/watch") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        seen = events(answer)
        name, data = await anext(seen)
        assert (name, data["state"]) == ("state", "PENDING")
        (task,) = await world.claim(engine, worker_id)
        await world.confirm(engine, worker_id, task)
        name, data = await anext(seen)
        assert (name, data["attempt"], data["workerId"]) == ("state", 1, worker_id)
        beat = c.TaskBeat(task_id=task_id, attempt=1, percent=40.0, message="half way")
        await engine.submit(
            c.HeartbeatTasks(namespace=NAMESPACE, worker_id=worker_id, items=(beat,))
        )
        while data.get("progressPercent") != 40.0:
            name, data = await anext(seen)
        assert data["progressMessage"] == "half way"
        await world.finish(engine, worker_id, task, output=b'{"sent":\r\n true}')
        rest = [each async for each in seen]
    assert [(name, data["state"]) for name, data in rest] == [
        ("state", "SUCCEEDED"),
        ("result", "SUCCEEDED"),
    ]
    assert rest[-1][1]["output"] == {"sent": True}
    assert len(engine.results) == 0


async def test_a_watcher_of_a_finished_task_gets_the_result_at_once(site: Site) -> None:
    task_id = await site.enqueue()
    await site.call("POST", f"/v1/tasks/{task_id}/cancel")
    async with site.client.stream("GET", f"/v1/tasks/{task_id}/watch") as answer:
        found = [name async for name, _ in events(answer)]
    assert found == ["state", "result"]
    head = await site.client.head(f"/v1/tasks/{task_id}/watch")
    assert (head.status_code, head.content) == (200, b"")


async def test_a_watcher_that_goes_leaves_nothing_behind(small: Site) -> None:
    task_id = await small.enqueue()
    async with small.client.stream("GET", f"/v1/tasks/{task_id}/watch") as answer:
        await anext(events(answer))
        assert len(small.engine.results) == 1
    await eventually(lambda: len(small.engine.results) == 0)


async def test_streams_are_bounded_and_end_when_the_server_stops(embedded: World) -> None:
    engine = await embedded.start()
    readiness = Readiness(engine)
    desk = RequestContext(engine, readiness, Metrics(), streams=Gate(1, "streams"))
    app = Edge(desk, Table(OPERATIONS), ServerSettings())
    async with site_of(embedded, engine, app) as site:
        task_id = await site.enqueue()
        path = f"/v1/tasks/{task_id}"
        async with site.client.stream("GET", f"{path}/watch") as answer:
            seen = events(answer)
            await anext(seen)
            refused = await site.refused("GET", f"{path}/watch")
            assert refused == (429, "rate_limited", {"retryAfterMs": 1_000})
            waiting = asyncio.create_task(site.call("GET", f"{path}?wait=60s"))
            await eventually(lambda: desk.waits.count == 1)
            readiness.stop()
            assert [each async for each in seen] == []
            assert (await waiting)["state"] == "PENDING"
        refused = await site.refused("GET", "/readyz")
        assert refused == (503, "unavailable", {"reason": "shutting_down", "retryAfterMs": 1_000})
