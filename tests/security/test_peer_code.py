"""Weaknesses that other systems had in what they made of payloads, one test each."""

from __future__ import annotations

import asyncio
import base64
import os
import pickle
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tenure import Client, PayloadError, RemoteError, TaskFailed, Worker, activity
from tenure.core.task.record import TaskState
from tenure.v1 import task_pb2
from tests.api.access.keyed_server import KeyedServer
from tests.bounds import ANSWER_S
from tests.sdk.client.stage import RawWorker, ServerStage, double, echo, failed, hold, succeeded
from tests.sdk.execution import process_activities
from tests.sdk.execution.rig import Rig

TRAP: Final = "tests.security.trap"
REFERENCES: Final = (
    f"{TRAP}:spring",
    f"{TRAP}.spring",
    "os:system",
    "builtins:eval",
    "builtins.eval",
    "subprocess:Popen",
    "tests.sdk.client.stage:double",
)
# The names that peers gave to pickles, and those that a reader might not look at twice.
ENCODINGS: Final = ("pickle", "python", "application.x-python-serialize", "json", "", "bytes")


# Without a name it is that of the input, which was bytes.
PLAIN: Final = ("bytes", "")


class Bomb:
    """Whoever loads it makes a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return open, (str(self._path), "w")


@pytest.fixture
def bombs(tmp_path: Path) -> Iterator[list[bytes]]:
    """Return the same in all protocols; the oldest is text. None may have gone off at the end."""
    mark = tmp_path / "loaded"
    made = [pickle.dumps(Bomb(mark), protocol) for protocol in (0, 2, 5)]
    pickle.loads(made[0]).close()  # noqa: S301 (it shows that the bomb is one)
    mark.unlink()
    yield made
    assert not mark.exists()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServerStage]:
    async with ServerStage(f"sqlite:///{tmp_path}/tenure.db") as made:
        yield made


@activity(start_to_close="30s")
async def read_details(kind: str) -> str:
    """Read what an earlier attempt is said to have left."""
    del kind
    return str(activity.heartbeat_details(object))


@activity(start_to_close="30s")
async def measure(data: bytes) -> int:
    return len(data)


# -- Pickle


async def test_weakness_pickle_as_the_input_of_a_task(bombs: list[bytes]) -> None:
    """In this process, on threads and in child processes."""
    kinds: dict[Any, object] = {measure: b"", double: 1, process_activities.double: 1}
    async with Rig(*kinds) as rig:
        for data in bombs:
            for encoding in ENCODINGS:
                for kind, usual in kinds.items():
                    task = await rig.start(kind, usual, input=data, encoding=encoding)
                    finish = await rig.finish_of(task)
                    is_bytes = encoding == "bytes" and kind is measure
                    assert (finish.kind == task_pb2.FINISH_KIND_SUCCEEDED) == is_bytes


async def test_weakness_pickle_as_the_output_of_a_task(
    server: ServerStage, bombs: list[bytes]
) -> None:
    outputs = [(data, encoding) for data in bombs for encoding in ENCODINGS]

    def work(task: task_pb2.AssignedTask) -> task_pb2.TaskFinish:
        return succeeded(task, *outputs[int(task.input)])

    async with RawWorker(server.target, work), Client(server.target) as client:
        for number, (data, encoding) in enumerate(outputs):
            handle = await client.enqueue_named(
                "untyped", str(number).encode(), start_to_close="9s"
            )
            try:
                async with asyncio.timeout(ANSWER_S):
                    assert await handle.result() == data
            except PayloadError:
                assert encoding not in PLAIN
            else:
                assert encoding in PLAIN
            await handle.describe()


async def test_weakness_pickle_in_the_details_of_an_error(
    server: ServerStage, bombs: list[bytes]
) -> None:
    def work(task: task_pb2.AssignedTask) -> task_pb2.TaskFinish:
        data = bombs[int(task.input)]
        return failed(task, message="no", type="Error", retryable=False, details=data)

    async with RawWorker(server.target, work), Client(server.target) as client:
        for number in range(len(bombs)):
            handle = await client.enqueue_named(
                "untyped", str(number).encode(), start_to_close="9s"
            )
            with pytest.raises(TaskFailed) as failure:
                await handle.result()
            assert failure.value.error is not None
            for wanted in ((), (object,), (dict,), (bytes,)):
                with pytest.raises(PayloadError):
                    failure.value.error.details(*wanted)


async def test_weakness_pickle_in_the_details_of_a_heartbeat(
    server: ServerStage, bombs: list[bytes]
) -> None:
    async with Rig(read_details) as rig:
        for data in bombs:
            task = await rig.start(read_details, "x", heartbeat_details=data)
            assert (await rig.finish_of(task)).kind == task_pb2.FINISH_KIND_FAILED
    async with RawWorker(server.target, hold) as worker, Client(server.target) as client:
        handle = await client.enqueue(double, 1)
        (task_id,) = await worker.holds(1)
        for data in bombs:
            await worker.beat(task_id, details=data)
            description = await handle.describe()
            assert "Bomb" not in repr(description)


async def test_weakness_pickle_sent_over_http(lobby: KeyedServer, bombs: list[bytes]) -> None:
    """A pickle is bytes that travel as base64: it comes out as it went in."""
    site = lobby.site
    for data in bombs:
        text = base64.b64encode(data).decode()
        task_id = await site.enqueue(inputBase64=text, encoding="pickle")
        assert (await site.task(task_id))["inputBase64"] == text
        headers = {"content-type": "application/python-pickle"}
        refusal = await site.refused("POST", "/v1/tasks", content=data, headers=headers)
        assert refusal[:2] == (415, "unsupported_media_type")


# -- Exceptions

CLASSES: Final = (
    "os.system",
    "builtins.SystemExit",
    "SystemExit",
    "KeyboardInterrupt",
    "builtins.eval",
    "subprocess.Popen",
    "tenure.errors.NotFound",
    "asyncio.CancelledError",
    f"{TRAP}.spring",
    f"{TRAP}:spring",
)


async def test_weakness_exceptions_rebuilt_by_their_name(
    server: ServerStage, tmp_path: Path
) -> None:
    """The type of an error is text, whatever it names, and its message is no argument."""
    file = tmp_path / "made"
    said = f"touch {file}"

    def work(task: task_pb2.AssignedTask) -> task_pb2.TaskFinish:
        name, details = CLASSES[int(task.input)], f'["{said}"]'.encode()
        return failed(task, message=said, type=name, retryable=False, details=details)

    async with RawWorker(server.target, work), Client(server.target) as client:
        for number, name in enumerate(CLASSES):
            handle = await client.enqueue_named(
                "untyped", str(number).encode(), start_to_close="9s"
            )
            with pytest.raises(TaskFailed) as failure:
                await handle.result()
            error = failure.value.error
            assert type(error) is RemoteError
            assert (error.type, error.message) == (name, said)
            assert error.details(str) == (said,)
    assert not os.path.exists(file)  # noqa: ASYNC240, PTH110 (one look)
    assert TRAP not in sys.modules


# -- Functions


async def test_weakness_functions_that_a_task_type_refers_to(server: ServerStage) -> None:
    """A worker runs what it has registered, under the names that it has registered."""
    worker = Worker(server.target, activities=[double, echo])
    async with Client(server.target) as client:
        running = asyncio.create_task(worker.run(handle_signals=False))
        handles = [
            await client.enqueue_named(name, {"number": 1}, start_to_close="60s")
            for name in REFERENCES
        ]
        assert await client.run(double, 21) == 42
        for handle in handles:
            assert (await handle.describe()).state is TaskState.PENDING
        await worker.shutdown("1ms")
        await running
    assert TRAP not in sys.modules


async def test_weakness_functions_that_a_server_names_to_a_worker() -> None:
    """Even a server that hands out what nobody offered makes a worker import nothing."""
    async with Rig(measure, process_activities.double) as rig:
        for name in REFERENCES:
            task = await rig.start(measure, b"x", type=name)
            assert (await rig.finish_of(task)).kind == task_pb2.FINISH_KIND_RELEASED
    assert TRAP not in sys.modules
