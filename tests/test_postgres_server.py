import os
import signal
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from tests.polling import eventually_sync
from tests.postgres import PostgresServer, PostgresUnavailableError

PROGRAM_THAT_DIES = """
import os, signal
from tests.postgres import PostgresServer
server = PostgresServer.start()
print(server.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


async def fetch(dsn: str, query: str) -> object:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


def wait_for_end(pid: int) -> None:
    """Wait until a process is gone; one that has no parent left may be reaped late."""

    def is_gone() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    eventually_sync(is_gone, f"the end of {pid}")


async def test_the_server_answers_over_its_socket(postgres: PostgresServer) -> None:
    assert await fetch(postgres.dsn("postgres"), "SELECT 1") == 1


async def test_the_server_does_not_listen_on_the_network(postgres: PostgresServer) -> None:
    assert await fetch(postgres.dsn("postgres"), "SHOW listen_addresses") == ""


async def test_databases_are_isolated(postgres: PostgresServer) -> None:
    first, second = postgres.create_database(), postgres.create_database()
    await fetch(postgres.dsn(first), "CREATE TABLE note (body TEXT)")
    assert await fetch(postgres.dsn(first), "SELECT to_regclass('note')::text") == "note"
    assert await fetch(postgres.dsn(second), "SELECT to_regclass('note')::text") is None


async def test_a_database_can_be_a_copy_of_another(postgres: PostgresServer) -> None:
    template = postgres.create_database()
    await fetch(postgres.dsn(template), "CREATE TABLE note AS SELECT 'kept' AS body")
    copy = postgres.create_database(template)
    assert await fetch(postgres.dsn(copy), "SELECT body FROM note") == "kept"


async def test_a_database_is_dropped_although_it_is_in_use(postgres: PostgresServer) -> None:
    name = postgres.create_database()
    connection = await asyncpg.connect(postgres.dsn(name))
    postgres.drop_database(name)
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await connection.fetchval("SELECT 1")
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await asyncpg.connect(postgres.dsn(name))
    connection.terminate()


async def test_committed_rows_survive_an_immediate_restart() -> None:
    with PostgresServer.start(durable=True) as server:
        dsn = server.dsn(server.create_database())
        assert await fetch(dsn, "SHOW fsync") == "on"
        await fetch(dsn, "CREATE TABLE note AS SELECT 'kept' AS body")
        before = server.pid
        server.restart("immediate")
        assert server.pid != before
        assert await fetch(dsn, "SELECT body FROM note") == "kept"


def test_nothing_is_left_after_closing() -> None:
    server = PostgresServer.start()
    pid, folder = server.pid, Path(server.dsn("postgres").partition("?host=")[2])
    assert folder.is_dir()
    server.close()
    server.close()
    assert not folder.exists()
    wait_for_end(pid)


def test_the_server_ends_with_the_process_that_started_it() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM_THAT_DIES],
        cwd=Path(__file__).parent.parent,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == -signal.SIGKILL
    wait_for_end(int(ended.stdout))


def test_missing_programs_are_an_error_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TENURE_TEST_PG_BIN", str(tmp_path))
    with pytest.raises(PostgresUnavailableError, match="make setup"):
        PostgresServer.start()
