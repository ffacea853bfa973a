"""The endpoint for probes, over real sockets."""

from __future__ import annotations

import asyncio
import json

import pytest

from tenure.v1.worker_pb2 import WORKER_HEALTH_BLOCKED
from tests.bounds import ANSWER_S
from tests.polling import eventually
from tests.sdk.worker.rig import Rig

ANY_PORT = ("127.0.0.1", 0)


async def ask(port: int, request: bytes) -> tuple[int, dict[str, object]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    async with asyncio.timeout(ANSWER_S):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body) if body else {}


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: worker\r\n\r\n".encode()


async def test_a_worker_is_alive_before_it_is_ready(rig: Rig) -> None:
    await rig.stop_server()
    rig.proxy.target = "127.0.0.1:1"
    connection, executor = rig.connect(health=ANY_PORT)
    await eventually(lambda: connection.probe)
    assert connection.probe is not None
    port = connection.probe.port

    assert (await ask(port, get("/livez")))[0] == 200
    code, body = await ask(port, get("/readyz"))
    assert code == 503
    assert body["status"] == "starting"

    await rig.start_server()
    await eventually(lambda: connection.status().is_ready)
    (task_id,) = await rig.enqueue()
    await eventually(lambda: executor.runs(task_id))
    code, body = await ask(port, get("/readyz?verbose"))
    assert code == 200
    assert body == {
        "worker_id": executor.worker_id,
        "status": "online",
        "active_count": 1,
        "health": "healthy",
        "is_ready": True,
        "worker_ids": {"default": executor.worker_id},
    }


async def test_a_draining_worker_is_alive_and_not_ready(rig: Rig) -> None:
    connection, executor = rig.connect(health=ANY_PORT)
    (task_id,) = await rig.enqueue()
    await eventually(lambda: executor.runs(task_id))
    assert connection.probe is not None
    port = connection.probe.port

    connection.shut_down()
    await eventually(lambda: connection.status().status == "draining")

    assert (await ask(port, get("/livez")))[0] == 200
    code, body = await ask(port, get("/readyz"))
    assert code == 503
    assert body["status"] == "draining"
    executor.succeed(task_id)
    assert await rig.ended(connection) is None
    with pytest.raises(OSError, match=r".*"):
        await ask(port, get("/livez"))


async def test_a_worker_without_its_lease_is_not_ready(fast: Rig) -> None:
    connection, executor = fast.connect(health=ANY_PORT)
    await eventually(lambda: connection.status().is_ready)
    assert connection.probe is not None
    port = connection.probe.port

    target, fast.proxy.target = fast.proxy.target, "127.0.0.1:1"
    fast.proxy.cut()
    await eventually(lambda: executor.exclusive_stops == 1)

    assert (await ask(port, get("/readyz")))[0] == 503
    assert (await ask(port, get("/livez")))[0] == 200
    fast.proxy.target = target


async def test_health_shows_a_blocked_loop_and_abandoned_threads(rig: Rig) -> None:
    connection, executor = rig.connect(lease_ms=3_000)
    await eventually(lambda: connection.status().is_ready)
    worker_id = connection.status().worker_id

    executor.reporter.loop_lag(1_500)
    await eventually(lambda: connection.status().health == "blocked")
    executor.reporter.loop_lag(3)
    executor.reporter.stuck(1)
    await eventually(lambda: connection.status().health == "stuck")

    async def is_told() -> bool:
        # The peak since the last heartbeat counts, so that no short block is missed.
        return (await rig.worker(worker_id)).health == WORKER_HEALTH_BLOCKED

    await eventually(is_told)
    executor.reporter.stuck(0)
    await eventually(lambda: connection.status().health == "healthy")


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (b"POST /livez HTTP/1.1\r\n\r\n", 405),
        (b"GET /metrics HTTP/1.1\r\n\r\n", 404),
        (b"GET /livez/ HTTP/1.1\r\n\r\n", 404),
        (b"nonsense\r\n\r\n", 400),
        (b"HEAD /livez HTTP/1.1\r\n\r\n", 200),
    ],
)
async def test_other_requests_get_their_answer(rig: Rig, request_: bytes, code: int) -> None:
    connection, _ = rig.connect(health=ANY_PORT)
    await eventually(lambda: connection.probe)
    assert connection.probe is not None

    assert (await ask(connection.probe.port, request_))[0] == code


async def test_a_request_that_is_too_long_is_cut_off(rig: Rig) -> None:
    connection, _ = rig.connect(health=ANY_PORT)
    await eventually(lambda: connection.probe)
    assert connection.probe is not None
    port = connection.probe.port

    with pytest.raises((ConnectionError, IndexError)):
        await ask(port, b"GET /livez HTTP/1.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n")
    assert (await ask(port, get("/livez")))[0] == 200


async def test_a_port_that_is_taken_ends_the_worker_with_a_clear_error(rig: Rig) -> None:
    async with await asyncio.start_server(lambda *_: None, *ANY_PORT) as taken:
        port = taken.sockets[0].getsockname()[1]
        connection, executor = rig.connect(health=("127.0.0.1", port))
        failure = await rig.ended(connection)

    assert isinstance(failure, OSError)
    assert str(port) in str(failure)
    assert executor.is_closed
