"""Listening to hints as a browser or ``curl -N`` does."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tenure.api.http.edge.app import make_app
from tenure.api.http.route.event import rendered
from tenure.api.readiness import Readiness
from tenure.api.setting import ServerSettings
from tenure.core.change_hint import ALL_KINDS, EventFilter, EventKind, Hint
from tenure.core.limits import CALLER_STREAMS_MAX, EVENT_GATHER_MS, EVENTS_KEPT_MS
from tenure.engine.access import command as c
from tenure.engine.replica.event_feed import HintPage
from tenure.engine.task.command import HeartbeatTasks, TaskBeat
from tests.api.access.keyed_server import bearer, open_lobby
from tests.api.http.site import Site, site_of
from tests.bounds import ANSWER_S
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE, World
from tests.polling import eventually

PATH = "/v1/events"
Found = tuple[str, str, Any]


async def events(answer: httpx.Response) -> AsyncIterator[Found]:
    """Read events: their ids, their names and their data.

    A server that is not alone says at first that it may have missed something; this is not told.
    """
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        field, _, value = line.partition(": ")
        if field:
            fields[field] = value
        elif "data" in fields:
            name, data = fields.pop("event"), json.loads(fields.pop("data"))
            if data.get("reason") != "missed":
                yield fields["id"], name, data


async def some(answer: httpx.Response, count: int, kind: str = "task") -> list[Found]:
    """Return the first events of a kind."""
    found: list[Found] = []
    async with asyncio.timeout(ANSWER_S):
        async for each in events(answer):
            found += [each] if each[1] == kind else []
            if len(found) == count:
                return found
    raise AssertionError(found)


async def test_a_listener_hears_what_changed_and_never_what_it_holds(site: Site) -> None:
    world, engine = site.world, site.engine
    async with site.client.stream("GET", PATH) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-accel-buffering"] == "no"
        await eventually(lambda: engine.events.subscriber_count == 1)
        worker_id = await world.worker(engine)
        task_id = await site.enqueue(input="a secret")
        (task,) = await world.claim(engine, worker_id)
        await world.finish(engine, worker_id, task, output=b'"another"')
        found = await some(answer, 3)
    numbers = [int(last_id.removeprefix(f"{engine.server_id}:")) for last_id, *_ in found]
    assert numbers == sorted(set(numbers))
    stored = await site.task(task_id)
    assert [data["state"] for *_, data in found] == ["PENDING", "DISPATCHED", "SUCCEEDED"]
    assert found[-1][2] == {
        "kind": "task",
        "namespace": NAMESPACE,
        "id": task_id,
        "version": stored["version"],
        "state": "SUCCEEDED",
        "queue": "default",
    }
    await eventually(lambda: engine.events.subscriber_count == 0)


async def test_a_stream_that_was_cut_in_the_middle_is_continued(small: Site) -> None:
    async with small.client.stream("GET", PATH) as answer:
        await eventually(lambda: small.engine.events.subscriber_count == 1)
        ids = await small.world.add(small.engine, 5)
        (*_, (last_id, _, data)) = await some(answer, 2)
        assert data["id"] == ids[1]
    ids += [await small.enqueue()]
    for options in (
        {"headers": {"last-event-id": last_id}},
        {"params": {"lastEventId": last_id}},
        # A browser keeps the address and sends the header of where it was.
        {"headers": {"last-event-id": last_id}, "params": {"lastEventId": "older"}},
    ):
        async with small.client.stream("GET", PATH, **options) as answer:  # type: ignore[arg-type]
            found = await some(answer, 4)
        assert [data["id"] for *_, data in found] == ids[2:]


async def test_one_that_was_cut_before_the_first_event_has_an_id_to_go_on_from(small: Site) -> None:
    async with small.client.stream("GET", PATH) as answer:
        lines = answer.aiter_lines()
        head = [await anext(lines) for _ in range(4)]
    assert head[:2] == [": hints of what changed", "retry: 1000"]
    assert head[3] == ""
    task_id = await small.enqueue()
    headers = {"last-event-id": head[2].removeprefix("id: ")}
    async with small.client.stream("GET", PATH, headers=headers) as answer:
        ((_, _, data),) = await some(answer, 1)
    assert data["id"] == task_id


@pytest.mark.parametrize("reason", ["too_old", "unknown"])
async def test_what_cannot_be_continued_gets_a_reset_and_goes_on(small: Site, reason: str) -> None:
    last_id = "01981c9e-7d1c-7c43-9a3e-0d2b6f2f9f10:7"
    async with small.client.stream("GET", PATH) as answer:
        await eventually(lambda: small.engine.events.subscriber_count == 1)
        await small.enqueue()
        ((first_id, *_),) = await some(answer, 1)
        last_id = first_id if reason == "too_old" else last_id
        for _ in range(2):
            await small.enqueue()
            await small.world.advance(EVENTS_KEPT_MS + 1)
        await small.enqueue()
    headers = {"last-event-id": last_id}
    async with small.client.stream("GET", f"{PATH}?kind=worker,task", headers=headers) as answer:
        seen = events(answer)
        position, name, data = await anext(seen)
        assert (name, data) == ("reset", {"kinds": ["task", "worker"], "reason": reason})
        assert position.startswith(small.engine.server_id)
        task_id = await small.enqueue()
        _, name, data = await anext(seen)
        assert (name, data["id"]) == ("task", task_id)


async def test_a_subscriber_that_reads_too_slowly_gets_a_reset_and_goes_on(embedded: World) -> None:
    engine = await embedded.start(events_kept_max=1_000)
    async with site_of(embedded, engine) as site:
        loop = asyncio.get_running_loop()
        with socket.create_connection(("127.0.0.1", site.port)) as slow:
            slow.settimeout(0)
            request = (
                f"GET {PATH} HTTP/1.1\r\nhost: localhost\r\ntenure-namespace: {NAMESPACE}\r\n\r\n"
            )
            await loop.sock_sendall(slow, request.encode())
            await eventually(lambda: engine.events.subscriber_count == 1)
            # It reads nothing until the buffers of both sides are full and the ring has moved on.
            hint = Hint(EventKind.TASK, NAMESPACE, "x" * 2_000, 1, "PENDING", "default")
            for _ in range(40):
                engine.events.hear([hint] * 250, frozenset())
                await asyncio.sleep(EVENT_GATHER_MS / 1000)
            await _read_until(slow, b'"reason":"slow"')
            task_id = await site.enqueue()
            await _read_until(slow, task_id.encode())


async def _read_until(sock: socket.socket, text: bytes) -> None:
    """Read until a text has come."""
    found = b""
    async with asyncio.timeout(ANSWER_S):
        while text not in found:
            some = await asyncio.get_running_loop().sock_recv(sock, 2**20)
            assert some
            found = found[-len(text) :] + some


async def test_progress_comes_to_who_asks_for_it(small: Site) -> None:
    engine, world = small.engine, small.world
    worker_id = await world.worker(engine)
    (task_id,) = await world.add(engine)
    (task,) = await world.claim(engine, worker_id)
    await world.confirm(engine, worker_id, task)
    async with (
        small.client.stream("GET", PATH) as changes,
        small.client.stream("GET", f"{PATH}?kind=progress") as progress,
    ):
        await eventually(lambda: engine.events.subscriber_count == 2)
        beat = TaskBeat(task_id=task_id, attempt=task.attempt, percent=50.0)
        await engine.submit(HeartbeatTasks(namespace=NAMESPACE, worker_id=worker_id, items=(beat,)))
        (told,) = await some(progress, 1, "progress")
        assert (told[2]["kind"], told[2]["id"], told[2]["state"]) == (
            "progress",
            task_id,
            "RUNNING",
        )
        await world.finish(engine, worker_id, task)
        assert [data["state"] for *_, data in await some(changes, 1)] == ["SUCCEEDED"]


async def test_runs_are_told_apart_from_tasks(small: Site) -> None:
    async with (
        small.client.stream("GET", PATH) as all_,
        small.client.stream("GET", f"{PATH}?kind=run") as runs,
    ):
        await eventually(lambda: small.engine.events.subscriber_count == 2)
        task_id = await small.enqueue()
        body = {"type": "order", "queue": "default"}
        run_id = (await small.call("POST", "/v1/runs", json=body))["runId"]
        ((_, _, told),) = await some(runs, 1, "run")
        assert (told["kind"], told["id"], told["state"]) == ("run", run_id, "PENDING")
        await small.call("POST", f"/v1/tasks/{task_id}/cancel")
        heard = await some(all_, 2)
    assert {each[2]["id"] for each in heard} == {task_id}


async def test_kinds_queues_and_namespaces_are_chosen(small: Site) -> None:
    engine, world = small.engine, small.world
    async with (
        small.client.stream("GET", f"{PATH}?kind=worker") as workers,
        small.client.stream("GET", f"{PATH}?queue=mail") as mail,
        small.client.stream("GET", PATH, headers={"tenure-namespace": OTHER_NAMESPACE}) as other,
    ):
        await eventually(lambda: engine.events.subscriber_count == 3)
        await small.enqueue()
        worker_id = await world.worker(engine)
        mailed = await small.enqueue(queue="mail")
        await engine.submit(c.SetQueue(namespace=NAMESPACE, name="mail", is_paused=True))
        elsewhere = await world.enqueue(engine, world.new(), namespace=OTHER_NAMESPACE)
        assert [data["id"] for *_, data in await some(workers, 1, "worker")] == [worker_id]
        seen = events(mail)
        assert [(await anext(seen))[2]["id"] for _ in range(2)] == [mailed, "mail"]
        assert [data["id"] for *_, data in await some(other, 1)] == [elsewhere[0].task_id]


async def test_bad_questions_are_refused(small: Site) -> None:
    for query, field in (
        ("kind=tasks", "kind"),
        ("kind=task,", "kind"),
        ("queue=a%20b", "queue"),
        (f"lastEventId={'x' * 129}", "lastEventId"),
        ("since=1", "since"),
    ):
        refused = await small.refused("GET", f"{PATH}?{query}")
        assert refused == (400, "invalid_argument", {"field": field}), query
    headers = {"tenure-namespace": "nobody"}
    assert await small.refused("GET", PATH, headers=headers) == (404, "not_found", {})
    head = await small.client.head(PATH)
    assert (head.status_code, head.content) == (200, b"")
    assert not small.engine.events.is_on


async def test_a_stream_ends_when_the_server_stops(embedded: World) -> None:
    engine = await embedded.start()
    readiness = Readiness(engine)
    app = make_app(engine, ServerSettings(), readiness)
    async with site_of(embedded, engine, app) as site:
        async with site.client.stream("GET", PATH) as answer:
            await eventually(lambda: engine.events.subscriber_count == 1)
            readiness.stop()
            lines = [line async for line in answer.aiter_lines()]
        assert lines[-2:] == [": the server stops", ""]
        assert engine.events.subscriber_count == 0


async def test_a_stream_ends_with_its_key(embedded: World) -> None:
    async with open_lobby(embedded) as lobby:
        key = await lobby.make_key("viewer", NAMESPACE)
        await lobby.make_key("admin")
        assert await lobby.code("GET", PATH) == (401, "unauthenticated")
        headers = {**bearer(key), "tenure-namespace": OTHER_NAMESPACE}
        assert await lobby.code("GET", PATH, headers=headers) == (404, "not_found")
        async with lobby.site.client.stream("GET", PATH, headers=bearer(key)) as answer:
            await eventually(lambda: lobby.engine.events.subscriber_count == 1)
            await lobby.revoke(key)
            text = (await answer.aread()).decode()
        assert '"error":"unauthenticated"' in text
        assert lobby.engine.events.subscriber_count == 0


def test_what_was_made_for_one_is_there_for_all() -> None:
    hint = Hint(EventKind.TASK, NAMESPACE, "x", 1, "PENDING", "default")
    page = HintPage(5, 0, NAMESPACE, [hint, hint])
    everything = EventFilter(NAMESPACE)
    assert rendered(page, everything, "s") is rendered(page, everything, "s")
    workers = EventFilter(NAMESPACE, frozenset({EventKind.WORKER}))
    assert rendered(page, workers, "s") == b""
    missed = HintPage(5, 0, "", (), ALL_KINDS - {EventKind.WORKER}, "missed")
    assert rendered(missed, workers, "s") == b""


class Listeners:
    """Sockets that listen to events, from addresses of this machine."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.writers: list[asyncio.StreamWriter] = []

    async def open(self, address: str = "127.0.0.1", key: str = "") -> bytes:
        """Open one more stream, and return the beginning of its answer."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self._port, local_addr=(address, 0)
        )
        self.writers.append(writer)
        lines = [f"GET {PATH} HTTP/1.1", "host: localhost", f"tenure-namespace: {NAMESPACE}"]
        lines += [f"authorization: Bearer {key}"] if key else []
        writer.write("\r\n".join([*lines, "", ""]).encode())
        async with asyncio.timeout(ANSWER_S):
            return await reader.read(4_096)

    def close(self) -> None:
        for writer in self.writers:
            writer.close()


async def _fill(site: Site, **mine: str) -> Listeners:
    """Open as many streams as one caller may have; the next one is refused."""
    listeners = Listeners(site.port)
    for _ in range(CALLER_STREAMS_MAX):
        assert b" 200 OK" in await listeners.open(**mine)
    refused = await listeners.open(**mine)
    assert b" 429 " in refused
    assert b'"error":"rate_limited"' in refused
    assert b'"retryAfterMs":5000' in refused
    return listeners


async def test_one_key_leaves_streams_for_others(embedded: World) -> None:
    async with open_lobby(embedded) as lobby:
        key, other = await lobby.make_key("viewer"), await lobby.make_key("viewer")
        listeners = await _fill(lobby.site, key=key)
        # It is the key that counts, from wherever it is used.
        assert b" 429 " in await listeners.open("127.0.0.2", key=key)
        assert b" 200 OK" in await listeners.open(key=other)
        listeners.writers[0].close()
        await eventually(lambda: lobby.engine.events.subscriber_count == CALLER_STREAMS_MAX)
        assert b" 200 OK" in await listeners.open(key=key)
        listeners.close()


async def test_one_address_leaves_streams_for_others_when_there_are_no_keys(small: Site) -> None:
    listeners = await _fill(small)
    assert b" 200 OK" in await listeners.open("127.0.0.2")
    listeners.close()


async def test_a_digest_adds_up_and_has_the_hints_of_what_was_named(site: Site) -> None:
    world, engine = site.world, site.engine
    named = await site.enqueue()
    path = f"{PATH}?digest=100&id={named}&kind=task,worker"
    async with site.client.stream("GET", path) as answer:
        await eventually(lambda: engine.events.subscriber_count == 1)
        worker_id = await world.worker(engine)
        for _ in range(3):
            await site.enqueue(queue="other")
        await site.call("POST", f"/v1/tasks/{named}/pause")
        counts: dict[str, dict[str, int]] = {}
        workers: list[str] = []
        hints: list[Any] = []
        async with asyncio.timeout(ANSWER_S):
            async for _, name, data in events(answer):
                assert name == "digest"
                for queue, kinds in data["counts"].items():
                    known = counts.setdefault(queue, {})
                    for kind, count in kinds.items():
                        known[kind] = known.get(kind, 0) + count
                workers += data["workers"]
                hints += data["hints"]
                assert data["hasAllWorkers"] is True
                if hints:
                    break
    assert counts == {"default": {"worker": 1, "task": 1}, "other": {"task": 3}}
    assert workers == [worker_id]
    (hint,) = hints
    assert (hint["id"], hint["state"]) == (named, "PAUSED")


async def test_a_digest_that_is_no_digest_is_refused(small: Site) -> None:
    for query, field in (
        ("digest=99", "digest"),
        ("digest=10001", "digest"),
        ("id=a", "id"),
        ("digest=250&" + "&".join(["id=a"] * 201), "id"),
    ):
        refused = await small.refused("GET", f"{PATH}?{query}")
        assert refused == (400, "invalid_argument", {"field": field}), query
