"""The keys that all servers of one database share, and the namespace that is always there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tenure.core.task.record import NewTask
from tenure.engine.access.secret import KEY_BYTES
from tenure.engine.clock import SystemClock
from tenure.engine.engine import Engine
from tenure.engine.task import command as c
from tenure.store.failure import Lost, SchemaError
from tenure.store.postgres import PostgresStore
from tenure.store.sqlite import SqliteStore
from tenure.store.table import queue as queue_table
from tenure.store.transaction import Store
from tests.engine.world import DEFAULT_NAMESPACE, QUEUE, SPEC, Faults, World
from tests.postgres import shared


def token_key_of(engine: Engine) -> bytes:
    return engine.access_cache.token_keys.signer(0).secret


async def test_a_server_has_two_different_keys_after_its_start(world: World) -> None:
    engine = await world.start()
    cursor_key, token_key = engine.secrets.cursor_key, token_key_of(engine)
    assert len(cursor_key) == len(token_key) == KEY_BYTES
    assert cursor_key != token_key


async def test_servers_that_start_at_once_have_the_same_keys(world: World) -> None:
    engines = await asyncio.gather(*(world.start() for _ in range(5)))
    assert len({engine.secrets for engine in engines}) == 1
    assert len({token_key_of(engine) for engine in engines}) == 1
    assert len((await world.dump("secrets"))["secrets"]) == 3


async def test_a_server_that_starts_later_has_the_keys_of_the_first(world: World) -> None:
    first = await world.start()
    await world.stop(first)
    second = await world.start()
    assert second.secrets == first.secrets
    assert token_key_of(second) == token_key_of(first)


async def test_a_key_that_is_missing_is_made_and_the_others_stay(world: World) -> None:
    first = await world.start()
    await world.database.execute("DELETE FROM secrets WHERE name = 'token_key'")
    second = await world.start()
    assert second.secrets.cursor_key == first.secrets.cursor_key
    assert token_key_of(second) != token_key_of(first)


@pytest.mark.parametrize("name", ["cursor_key", "token_key"])
async def test_a_key_that_is_too_short_refuses_the_start(world: World, name: str) -> None:
    await world.stop(await world.start())
    short = "decode('00ff', 'hex')" if world.dialect == "postgres" else "x'00ff'"
    await world.database.execute(f"UPDATE secrets SET value = {short} WHERE name = '{name}'")
    with pytest.raises(SchemaError, match=f"{name} in the database has less than 32 bytes"):
        await world.start()


async def test_the_keys_are_never_shown(world: World) -> None:
    engine = await world.start()
    assert repr(engine.secrets) == str(engine.secrets) == "Secrets(…)"


async def test_a_server_that_cannot_read_its_keys_does_not_start(world: World) -> None:
    faults = Faults()
    faults.raise_at("list_secrets", Lost("gone", reason="connection_lost"))
    with pytest.raises(Lost):
        await world.start(faults=faults)
    await world.start(faults=faults)


def test_the_keys_of_a_real_server_come_from_the_system() -> None:
    clock = SystemClock()
    made = {clock.random_bytes(KEY_BYTES) for _ in range(100)}
    assert len(made) == 100
    assert {len(each) for each in made} == {KEY_BYTES}


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
async def test_a_fresh_database_accepts_tasks_in_the_default_namespace(
    dialect: str, tmp_path: Path
) -> None:
    clock = SystemClock()
    store: Store
    if dialect == "sqlite":
        store = SqliteStore(str(tmp_path / "tenure.db"), clock=clock.now_ms)
    else:
        server = shared()
        store = PostgresStore(server.dsn(server.create_database()))
    async with Engine(store, clock=clock) as engine:
        new = NewTask(id=clock.new_id(), type="mail", queue=QUEUE, spec=SPEC)
        command = c.EnqueueTasks(namespace=DEFAULT_NAMESPACE, tasks=(new,))
        (answer,) = await engine.submit(command)
        assert answer.is_new
        (namespace,) = await store.read(
            lambda tx: queue_table.read_namespaces(tx, [DEFAULT_NAMESPACE])
        )
        assert 0 <= clock.now_ms() - namespace.created_at_ms < 60_000
