"""A new API key for a worker that runs: it keeps its tasks, and the old key can be revoked."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any, Final

import pytest

from tenure import Client, SyncClient, Worker, activity
from tenure.core.access.api_key import Role
from tenure.engine.read import query
from tenure.sdk.transport.api_key import ApiKeySource
from tests.bounds import WAIT_S
from tests.polling import eventually
from tests.sdk.transport.test_api_key import House, double, house, working
from tests.wire.call import LOCAL_FAULT

__all__ = ["house"]
BOTH: Final = pytest.mark.parametrize("mode", ["session", "poll"])


def key_file(tmp_path: Path, key: str) -> Path:
    """Write a key as a secret is mounted: whole, and at once."""
    path, new = tmp_path / "key", tmp_path / "key.new"
    new.write_text(f"{key}\n")
    new.replace(path)
    return path


async def key_of(house: House, worker: Worker) -> str:
    view = await query.get_worker(
        house.server.engine.store, namespace="default/default", worker_id=worker.worker_id
    )
    return view.worker.key_id


async def until_it_belongs_to(house: House, worker: Worker, key: str) -> None:
    async def has_the_key() -> bool:
        return await key_of(house, worker) == key.split("_")[1]

    await eventually(has_the_key)


class Gate:
    """An activity that runs until it is let go."""

    def __init__(self) -> None:
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

    @activity(start_to_close="10m")
    async def wait(self) -> str:
        self.begun.set()
        await self.go_on.wait()
        return "done"


@BOTH
async def test_a_worker_takes_a_new_key_from_its_file_and_keeps_its_tasks(
    house: House, tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: Any
) -> None:
    old, new = await house.make_key(Role.WORKER), await house.make_key(Role.WORKER)
    client_key = await house.make_key(Role.CLIENT)
    caplog.set_level(logging.INFO, "tenure")
    gate = Gate()
    worker = Worker(
        house.target, activities=[gate, double], api_key=key_file(tmp_path, old), mode=mode
    )
    async with working(worker), Client(house.target, api_key=client_key) as client:
        handle = await client.enqueue(Gate.wait)
        async with asyncio.timeout(WAIT_S):
            await gate.begun.wait()
        worker_id = worker.worker_id
        key_file(tmp_path, new)
        await until_it_belongs_to(house, worker, new)
        await house.revoke(old)
        assert await client.run(double, 21) == 42
        gate.go_on.set()
        assert await handle.result(timeout=WAIT_S) == "done"
        assert (await handle.describe()).attempt == 1
        assert worker.worker_id == worker_id
    # A poll that waits with the old key is told of its end, and asked for again.
    # gRPC itself may fail to read the end of a session; that is an outage of a moment.
    told = [each for each in caplog.messages if LOCAL_FAULT not in each]
    assert mode == "poll" or not [each for each in told if "tries again" in each]
    assert not [key for key in (old, new) if key.split("_", 2)[2] in caplog.text]


@BOTH
async def test_a_key_that_is_revoked_first_costs_no_task_either(
    house: House, tmp_path: Path, mode: Any
) -> None:
    old, new = await house.make_key(Role.WORKER), await house.make_key(Role.WORKER)
    client_key = await house.make_key(Role.CLIENT)
    gate = Gate()
    worker = Worker(house.target, activities=[gate], api_key=key_file(tmp_path, old), mode=mode)
    async with working(worker), Client(house.target, api_key=client_key) as client:
        handle = await client.enqueue(Gate.wait)
        async with asyncio.timeout(WAIT_S):
            await gate.begun.wait()
        key_file(tmp_path, new)
        await house.revoke(old)
        await until_it_belongs_to(house, worker, new)
        gate.go_on.set()
        assert await handle.result(timeout=WAIT_S) == "done"
        assert (await handle.describe()).attempt == 1


async def test_a_session_goes_on_with_the_old_key_while_the_new_one_is_refused(
    house: House, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, client_key = await house.make_key(Role.WORKER), await house.make_key(Role.CLIENT)
    worker = Worker(house.target, activities=[double], api_key=key_file(tmp_path, old))
    caplog.set_level(logging.WARNING, "tenure.worker")
    async with working(worker), Client(house.target, api_key=client_key) as client:
        assert await client.run(double, 1) == 2
        key_file(tmp_path, old[:-4] + "nope")
        await eventually(lambda: "the session keeps the old one" in caplog.text)
        assert await client.run(double, 2) == 4
        good = await house.make_key(Role.WORKER)
        key_file(tmp_path, good)
        await until_it_belongs_to(house, worker, good)
        assert await client.run(double, 3) == 6


async def test_clients_take_keys_from_files_and_from_the_environment(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = key_file(tmp_path, await house.make_key(Role.ADMIN))
    async with Client(house.target, api_key=path) as client:
        handle = await client.enqueue(double, 1)
    monkeypatch.setenv("TENURE_API_KEY_FILE", str(path))
    async with Client(house.target) as client:
        assert (await client.handle(handle.task_id).describe()).state == "pending"
    with pytest.raises(ValueError, match=r"cannot be read from .*nowhere: No such file"):
        SyncClient(house.target, api_key=tmp_path / "nowhere")


# -- The file


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr("tenure.sdk.transport.api_key.time.monotonic", lambda: now[0])
    return now


def sent(key: ApiKeySource) -> str:
    ((name, value),) = key.metadata or ()
    assert name == "authorization"
    return value.removeprefix("Bearer ")


def test_a_file_is_looked_at_each_second(tmp_path: Path, now_s: list[float]) -> None:
    key = ApiKeySource(key_file(tmp_path, "tnr_a_1"))
    key_file(tmp_path, "tnr_b_2")
    assert (sent(key), key.look()) == ("tnr_a_1", 0)
    now_s[0] += 1.0
    assert (sent(key), key.look()) == ("tnr_b_2", 1)
    now_s[0] += 1.0
    key_file(tmp_path, "tnr_b_2")
    assert (sent(key), key.look()) == ("tnr_b_2", 1)


@pytest.mark.parametrize("bad", ["", "two words", "ключ", None])
def test_a_file_without_a_key_changes_nothing(
    tmp_path: Path, now_s: list[float], caplog: pytest.LogCaptureFixture, bad: str | None
) -> None:
    path = key_file(tmp_path, "tnr_a_1")
    key = ApiKeySource(path)
    if bad is None:
        path.unlink()
    else:
        path.write_text(bad, encoding="utf-8")
    for _ in range(3):
        now_s[0] += 1.0
        assert sent(key) == "tnr_a_1"
    assert caplog.text.count("The previous API key is still used.") == 1
    assert not bad or bad not in caplog.text
    key_file(tmp_path, "tnr_b_2")
    now_s[0] += 1.0
    assert (sent(key), key.number) == ("tnr_b_2", 1)


def test_a_text_is_a_key_for_ever(now_s: list[float]) -> None:
    key = ApiKeySource("tnr_a_1")
    now_s[0] += 10.0
    assert (sent(key), key.look()) == ("tnr_a_1", 0)
    assert ApiKeySource("").metadata is None
