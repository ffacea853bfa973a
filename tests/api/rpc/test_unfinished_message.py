"""Messages that never arrive whole: what they hold is bounded, and they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
import pytest

from tenure.api.rpc.message_reader import StrangerMessages
from tenure.core import limits
from tenure.core.access.api_key import Role
from tenure.engine.access import command as c
from tenure.engine.engine import Engine
from tenure.errors import RateLimited
from tenure.v1 import workflow_service_pb2 as pb
from tests.api.rpc.wire import Wire, detail, refused
from tests.bounds import ANSWER_S
from tests.polling import eventually
from tests.wire.http2 import Call, RawConnection

ENQUEUE: Final = "/tenure.v1.TaskService/EnqueueTasks"
HEALTH: Final = "/grpc.health.v1.Health/Check"
MESSAGE_BYTES: Final = 512 * 1024
AGES_MS: Final = 1_000_000


@asynccontextmanager
async def stranger(wire: Wire) -> AsyncIterator[RawConnection]:
    """Connect without a key."""
    connection = await RawConnection.open(str(wire.address))
    try:
        yield connection
    finally:
        await connection.close()


def begin(connection: RawConnection, path: str, count: int) -> tuple[list[Call], Any]:
    """Begin calls whose messages stay unfinished; return them and what sends their data."""
    calls = [connection.call(path) for _ in range(count)]
    sending = asyncio.gather(*(connection.send_unfinished(each, MESSAGE_BYTES) for each in calls))
    return calls, sending


async def make_key(engine: Engine) -> tuple[tuple[str, str], ...]:
    """Close the server, and return the metadata that shows its first key."""
    made = await engine.submit(c.CreateKey(name="operator", role=Role.ADMIN))
    return (("authorization", f"Bearer {made.text.reveal()}"),)


async def over(calls: list[Call]) -> None:
    async with asyncio.timeout(ANSWER_S):
        await asyncio.gather(*(each.is_over.wait() for each in calls))


@pytest.mark.parametrize("path", [ENQUEUE, "/tenure.v1.TaskService/WatchTasks", "/x.Y/Z"])
async def test_without_a_key_a_call_is_refused_before_its_message_is_read(
    engine: Engine, wire: Wire, path: str
) -> None:
    await make_key(engine)
    async with stranger(wire) as connection:
        calls, sending = begin(connection, path, 20)
        await over(calls)
        await sending
        assert all(each.has_answer for each in calls)
        assert max(each.sent for each in calls) <= limits.STREAM_WINDOW_BYTES


@pytest.mark.parametrize(
    "path",
    [
        ENQUEUE,
        HEALTH,
        "/grpc.health.v1.Health/Watch",
        "/tenure.v1.TaskService/CompleteByToken",
        "/tenure.v1.TaskService/WatchTasks",
        "/tenure.v1.SessionService/Open",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    ],
)
async def test_a_message_that_does_not_arrive_in_time_is_given_up(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(limits, "MESSAGE_MS", 50)
    call: Any = wire.channel.stream_stream(path)()
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        async with asyncio.timeout(ANSWER_S):
            await call.read()
    assert failed.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert detail(failed.value).code == "deadline_exceeded"


async def test_a_key_gives_no_more_time_for_a_message(
    engine: Engine, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = await make_key(engine)
    monkeypatch.setattr(limits, "MESSAGE_MS", 50)
    call: Any = wire.channel.stream_unary(ENQUEUE)(metadata=metadata)
    status, refusal = await refused(call)
    assert (status, refusal.code) == ("DEADLINE_EXCEEDED", "deadline_exceeded")


@pytest.mark.parametrize("path", [ENQUEUE, HEALTH])
async def test_a_call_without_any_message_is_refused(wire: Wire, path: str) -> None:
    call: Any = wire.channel.stream_unary(path)(iter(()))
    status, refusal = await refused(call)
    assert (status, refusal.code, refusal.field) == (
        "INVALID_ARGUMENT",
        "invalid_argument",
        "request",
    )


@pytest.mark.parametrize("path", [ENQUEUE, HEALTH])
async def test_few_unfinished_messages_of_strangers_are_read_at_a_time(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(limits, "STRANGER_MESSAGE_MS", AGES_MS)
    monkeypatch.setattr(limits, "MESSAGE_MS", AGES_MS)
    async with stranger(wire) as connection:
        calls, sending = begin(connection, path, 40)

        def large_count() -> int:
            return sum(each.sent > limits.STREAM_WINDOW_BYTES for each in calls)

        await eventually(lambda: large_count() == limits.STRANGER_MESSAGES_MAX)
        # Time for others to send more than their windows, if the server let them.
        await asyncio.sleep(0.2)
        assert large_count() == limits.STRANGER_MESSAGES_MAX
        sending.cancel()
    # They are gone with their connection.
    await wire.enqueue()


async def test_unfinished_messages_end_with_an_answer(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MESSAGE_MS", 500)
    async with stranger(wire) as connection:
        calls, sending = begin(connection, ENQUEUE, 40)
        await over(calls)
        await sending
        assert all(each.has_answer for each in calls)
        await wire.enqueue()


async def test_a_message_that_comes_slowly_makes_room_for_others(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STRANGER_MESSAGE_MS", 50)
    monkeypatch.setattr(limits, "MESSAGE_MS", AGES_MS)
    async with stranger(wire) as connection:
        calls, sending = begin(connection, ENQUEUE, 40)
        await eventually(lambda: sum(each.sent for each in calls) > MESSAGE_BYTES)
        async with asyncio.timeout(ANSWER_S):
            await wire.enqueue()
        assert any(each.is_over.is_set() for each in calls)
        sending.cancel()


async def test_messages_of_strangers_do_not_keep_callers_with_a_key_waiting(
    engine: Engine, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STRANGER_MESSAGE_MS", AGES_MS)
    monkeypatch.setattr(limits, "MESSAGE_MS", AGES_MS)
    metadata = await make_key(engine)
    async with stranger(wire) as connection:
        calls, sending = begin(connection, HEALTH, 40)
        await eventually(lambda: sum(each.sent for each in calls) > MESSAGE_BYTES)
        async with asyncio.timeout(ANSWER_S):
            await wire.workflows.ListWorkers(pb.ListWorkersRequest(), metadata=metadata)
        assert not any(each.is_over.is_set() for each in calls)
        sending.cancel()


async def test_a_connection_has_few_streams(wire: Wire) -> None:
    async with stranger(wire) as connection:
        assert connection.streams_max == limits.CONNECTION_STREAMS_MAX


class Visits:
    """Calls that read their messages until they are told to leave."""

    def __init__(self) -> None:
        self.messages = StrangerMessages()
        self.inside: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._leaving: list[tuple[str, asyncio.Event]] = []
        self.on_leave: Callable[[], object] = lambda: None

    async def come(self, client: str, count: int = 1) -> list[asyncio.Task[None]]:
        made = [asyncio.create_task(self._visit(client)) for _ in range(count)]
        self._tasks += made
        await asyncio.sleep(0)
        return made

    async def _visit(self, client: str) -> None:
        leaving = asyncio.Event()
        async with self.messages.place(client):
            self.inside.append(client)
            self._leaving.append((client, leaving))
            await leaving.wait()
            self.inside.remove(client)
        self.on_leave()

    async def leave(self, client: str) -> None:
        """Let the one of a client that came first go."""
        found = next(each for each in self._leaving if each[0] == client)
        self._leaving.remove(found)
        found[1].set()
        for _ in range(5):
            await asyncio.sleep(0)

    async def end(self) -> None:
        for each in self._tasks:
            each.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        assert (self.messages.count, self.messages.waiting_count) == (0, 0)


@pytest.fixture
async def visits(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Visits]:
    monkeypatch.setattr(limits, "STRANGER_MESSAGE_MS", AGES_MS)
    monkeypatch.setattr(limits, "STRANGER_MESSAGES_MAX", 5)
    monkeypatch.setattr(limits, "STRANGER_CALLS_MAX", 5)
    made = Visits()
    yield made
    await made.end()


async def test_each_address_has_its_turn(visits: Visits) -> None:
    await visits.come("a", 8)
    assert visits.inside == ["a"] * 5
    await visits.come("b", 1)
    await visits.leave("a")
    assert visits.inside == ["a"] * 5, "this one has waited for longer"
    await visits.leave("a")
    assert visits.inside == [*["a"] * 4, "b"]
    await visits.leave("b")
    assert visits.inside == ["a"] * 5


async def test_calls_that_find_no_place_to_wait_are_refused(visits: Visits) -> None:
    await visits.come("a", 8)
    assert visits.messages.waiting_count == 3
    (late,) = await visits.come("a")
    with pytest.raises(RateLimited) as refusal:
        await late
    assert refusal.value.fields["retry_after_ms"] == limits.OVERLOAD_RETRY_MS
    # There is room for others.
    await visits.come("b")
    assert visits.messages.waiting_count == 4


async def test_who_goes_away_while_waiting_is_passed_over(visits: Visits) -> None:
    await visits.come("a", 5)
    gone, stays = await visits.come("a", 2)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    assert visits.messages.waiting_count == 1
    await visits.leave("a")
    assert len(visits.inside) == 5
    assert not stays.done()


async def test_all_may_go_away_at_once(visits: Visits) -> None:
    everybody = [*await visits.come("a", 7), *await visits.come("b", 1)]
    for each in everybody:
        each.cancel()
    await asyncio.gather(*everybody, return_exceptions=True)
    assert (visits.messages.count, visits.messages.waiting_count) == (0, 0)


async def test_who_goes_away_with_a_place_just_given_passes_it_on(visits: Visits) -> None:
    await visits.come("a", 5)
    gone, stays = await visits.come("a", 2)
    # The place is given while the one that gets it is cancelled.
    visits.on_leave = gone.cancel
    await visits.leave("a")
    assert gone.cancelled()
    assert len(visits.inside) == 5
    assert not stays.done()
    assert visits.messages.waiting_count == 0
