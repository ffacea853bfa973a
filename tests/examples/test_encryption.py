"""Encryption: the server stores ciphertext only, and a wrong key is an error, never a null."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from examples.encryption import EncryptingCodec, write_letter
from tenure import ApplicationError, Client, PayloadError, RetryPolicy, TaskFailed, Worker, activity
from tests.cli.server import ServerProcess
from tests.examples.stage import Stage

CANARY = "canary-8c1d"
KEY = bytes(range(32))


@activity(start_to_close="30s", queue="canary", retry=RetryPolicy(initial_interval="1ms"))
async def leak(secret: str) -> str:
    """Put a secret wherever an activity can put one, but for the message of an error."""
    activity.heartbeat({"seen": secret})
    if not activity.info().failure_count:
        raise ApplicationError("once", secret)
    resumed = activity.heartbeat_details(dict[str, str])
    return f"{secret} {resumed['seen']}"


def stored(store: Path) -> bytes:
    """Return everything that the server has written to disk."""
    return b"".join(each.read_bytes() for each in store.parent.iterdir())


def test_the_script_prints_the_letter_and_the_server_never_sees_it(
    stage: Stage, store: Path
) -> None:
    assert stage.run("encryption.py") == ["Dear Ann, all is well."]
    assert b"aes-gcm:" in stored(store)
    assert b"Dear Ann" not in stored(store)
    assert b"Ann" not in stored(store)


async def test_input_result_heartbeats_and_details_are_stored_as_ciphertext(
    server: ServerProcess, store: Path
) -> None:
    codec = EncryptingCodec(KEY)
    worker = Worker(server.grpc, activities=[leak], queue="canary", codec=codec)
    working = asyncio.create_task(worker.run(handle_signals=False))
    async with Client(server.grpc, codec=codec) as client:
        assert await client.run(leak, CANARY) == f"{CANARY} {CANARY}"
    await worker.shutdown()
    await working
    assert CANARY.encode() not in stored(store)


@pytest.mark.parametrize("codec", [EncryptingCodec(os.urandom(32)), None], ids=["wrong", "none"])
async def test_a_worker_with_a_wrong_key_fails_the_task_with_a_clear_error(
    server: ServerProcess, codec: EncryptingCodec | None
) -> None:
    worker = Worker(server.grpc, activities=[write_letter], queue="private", codec=codec)
    working = asyncio.create_task(worker.run(handle_signals=False))
    async with Client(server.grpc, codec=EncryptingCodec(KEY)) as client:
        with pytest.raises(
            TaskFailed, match="The input does not fit activity write_letter"
        ) as caught:
            await client.run(write_letter, "Ann")
    await worker.shutdown()
    await working
    error = caught.value.error
    assert error is not None
    assert "aes-gcm:json" in error.message
    assert (error.category, caught.value.attempt) == ("DATA_QUALITY", 1)


async def test_a_client_with_a_wrong_key_cannot_read_the_result_and_says_so(
    server: ServerProcess,
) -> None:
    worker = Worker(
        server.grpc, activities=[write_letter], queue="private", codec=EncryptingCodec(KEY)
    )
    working = asyncio.create_task(worker.run(handle_signals=False))
    async with (
        Client(server.grpc, codec=EncryptingCodec(KEY)) as client,
        Client(server.grpc, codec=EncryptingCodec(os.urandom(32))) as stranger,
    ):
        handle = await client.enqueue(write_letter, "Ann")
        await handle.result()
        with pytest.raises(PayloadError, match="succeeded, but its result cannot be read"):
            await stranger.handle(handle.task_id, result=str).result()
    await worker.shutdown()
    await working
