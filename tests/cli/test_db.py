"""``tenure db`` on both databases, with and without a server beside it."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path

import apsw
import asyncpg
import pytest

from tenure.cli.database import inspection
from tenure.store.location import make_store
from tenure.store.table import task as task_table
from tests.cli.conftest import invoke, read
from tests.cli.server import ServerProcess
from tests.cli.terminal import Terminal
from tests.postgres import PostgresServer
from tests.store.rows import (
    FAULT,
    NAMESPACE,
    NOW,
    ended_attempt,
    finished_from,
    insert,
    pending,
    task_id,
)


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a store that is not prepared yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/tenure.db"
    postgres: PostgresServer = request.getfixturevalue("postgres")
    return postgres.dsn(postgres.create_database())


def test_a_new_store_is_migrated_once_and_is_sound(store_url: str) -> None:
    first = invoke("db", "migrate", "--store", store_url)
    assert first.exit_code == 0
    assert "is migrated from schema 0 to " in first.stdout
    again = invoke("db", "migrate", env={"TENURE_STORE": store_url})
    assert "is up to date" in again.stdout
    status = read(invoke("db", "status", "--store", store_url, "-o", "json"))
    assert status["schemaVersion"] == len(status["applied"]) > 0
    assert status["pending"] == []
    assert status["sizeBytes"] > 0
    shown = invoke("db", "status", "--store", store_url)
    assert "pending: nothing" in shown.stdout
    assert invoke("db", "check", "--store", store_url).stdout.endswith(" is not damaged.\n")
    assert read(invoke("db", "check", "--store", store_url, "-o", "json"))["ok"] is True
    assert read(invoke("db", "migrate", "--store", store_url, "-o", "json")) == status


def test_a_look_at_a_file_leaves_no_thread_behind(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tenure.db"
    assert invoke("db", "migrate", "--store", url).exit_code == 0
    before = set(threading.enumerate())
    inspection.check(url)
    assert set(threading.enumerate()) <= before


def test_an_empty_database_has_everything_pending(postgres: PostgresServer, tmp_path: Path) -> None:
    file = tmp_path / "empty.db"
    file.touch()
    for url in (postgres.dsn(postgres.create_database()), f"sqlite:///{file}"):
        shown = invoke("db", "status", "--store", url)
        assert "schema:  none yet" in shown.stdout
        assert "run tenure db migrate" in shown.stdout
        status = read(invoke("db", "status", "--store", url, "-o", "json"))
        assert status["pending"][0]["number"] == 1


def test_a_store_is_looked_at_beside_a_running_server(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tenure.db"
    with ServerProcess(url, tmp_path / "log"):
        assert invoke("db", "status", "--store", url).exit_code == 0
        assert invoke("db", "check", "--store", url).exit_code == 0
        refused = invoke("db", "migrate", "--store", url)
    assert refused.exit_code == 4
    assert "Another Tenure server uses tenure.db" in refused.stderr


@pytest.mark.parametrize("command", ["status", "check"])
def test_a_file_that_is_not_there_is_not_found_and_not_made(command: str, tmp_path: Path) -> None:
    file = tmp_path / "missing.db"
    result = invoke("db", command, "--store", f"sqlite:///{file}")
    assert result.exit_code == 3
    assert "tenure db migrate" in result.stderr
    assert not file.exists()


@pytest.mark.parametrize(
    "command",
    [
        ("db", "migrate"),
        ("db", "status"),
        ("keys", "create", "--role", "admin"),
        ("server", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"),
    ],
)
def test_a_mistyped_folder_of_a_store_is_refused_and_not_made(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    folder = tmp_path / "typo" / "folder"
    result = invoke(*command, "--store", f"sqlite:///{folder}/tenure.db")
    assert result.exit_code == 3
    assert "no database" in result.stderr or f"folder {folder} does not exist" in result.stderr
    assert not folder.parent.exists()


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    file = tmp_path / "text.db"
    file.write_text("This is no database at all. " * 200)
    for command in ("status", "check", "migrate"):
        result = invoke("db", command, "--store", f"sqlite:///{file}")
        assert result.exit_code == 5, result.output
        assert "file is not a database" in result.stderr


def test_a_damaged_file_is_found_out(tmp_path: Path) -> None:
    file = tmp_path / "tenure.db"
    url = f"sqlite:///{file}"
    invoke("db", "migrate", "--store", url)
    connection = apsw.Connection(str(file))
    connection.pragma("writable_schema", 1)
    connection.execute(
        "UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema "
        "WHERE name = 'workers') WHERE name = 'queues'"
    )
    connection.close()
    result = invoke("db", "check", "--store", url)
    assert result.exit_code == 1
    assert "is damaged" in result.stderr
    assert "restore a backup" in result.stderr
    assert invoke("db", "check", "--store", url, "-o", "json").exit_code == 1


def test_every_damaged_payload_is_named(store_url: str) -> None:
    asyncio.run(_fill(store_url))
    sound = read(invoke("db", "check", "--store", store_url, "-o", "json"))
    assert (sound["ok"], sound["rowCount"], sound["unverifiedCount"]) == (True, 51, 0)
    asyncio.run(_damage(store_url))
    result = invoke("db", "check", "--store", store_url)
    assert result.exit_code == 1
    assert "is damaged" in result.stderr
    shown = invoke("db", "check", "--store", store_url, "-o", "json")
    assert shown.exit_code == 1
    found = json.loads(shown.stdout)
    assert found["problems"] == [
        f"tasks {NAMESPACE} {task_id(7)}: input",
        f"history {NAMESPACE} {task_id(130)}: output",
        f"attempts {NAMESPACE} {task_id(1)} attempt 1: error",
    ]
    assert (found["ok"], found["rowCount"]) == (False, 51)
    for problem in found["problems"]:
        assert problem in result.stderr


def test_rows_without_checksums_are_counted(store_url: str) -> None:
    asyncio.run(_fill(store_url))
    asyncio.run(_execute(store_url, "UPDATE tasks SET input_checksum = NULL"))
    result = invoke("db", "check", "--store", store_url)
    assert result.exit_code == 0
    assert "25 of 51 rows have no checksum" in result.stderr


async def _fill(url: str) -> None:
    store = make_store(url, clock=lambda: NOW)
    await store.open()
    await insert(store, *[pending(n, input=b"1000000001") for n in range(25)])
    ended = [finished_from(pending(n), output=b"1000000001") for n in range(120, 145)]
    await store.transaction(lambda tx: task_table.insert_finished(tx, ended))
    attempts = [ended_attempt(1, 1, error=FAULT)]
    await store.transaction(lambda tx: task_table.insert_attempts(tx, attempts))
    await store.close()


async def _damage(url: str) -> None:
    data = "CAST('9000000001' AS BLOB)" if url.startswith("sqlite") else "CAST('9' AS bytea)"
    await _execute(url, f"UPDATE tasks SET input = {data} WHERE id = '{task_id(7)}'")
    await _execute(url, f"UPDATE history SET output = {data} WHERE id = '{task_id(130)}'")
    await _execute(url, f"UPDATE attempts SET error = {data}")


async def _execute(url: str, sql: str) -> None:
    """Change rows behind the back of every server."""
    if url.startswith("sqlite"):
        file = apsw.Connection(url.removeprefix("sqlite:///"))
        file.execute(sql)
        file.close()
        return
    connection = await asyncpg.connect(url)
    await connection.execute(sql)
    await connection.close()


def test_progress_is_shown_on_a_terminal(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tenure.db"
    asyncio.run(_fill(url))
    with Terminal("db", "check", "--store", url, env={}) as terminal:
        terminal.until("rows checked")
        terminal.until("is not damaged")


@pytest.mark.parametrize(
    ("url", "exit_code"),
    [
        ("mysql://u:secret-word@h/d", 2),
        ("sqlite://tenure.db", 2),
        ("sqlite:///", 2),
        ("postgresql://u:secret-word@127.0.0.1:1/d", 5),
        ("postgresql://u:secret-word@127.0.0.1:port/d", 2),
        ("postgresql://u:secret-word@[::1/d", 2),
    ],
)
@pytest.mark.parametrize("command", ["db status", "db migrate", "server"])
def test_a_store_that_cannot_be_used_is_told_without_its_password(
    command: str, url: str, exit_code: int
) -> None:
    ports = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0") if command == "server" else ()
    result = invoke(*command.split(), "--store", url, *ports)
    assert result.exit_code == exit_code, result.output
    assert "secret-word" not in result.output
    assert result.stderr.startswith("Error: ")


def test_a_folder_that_may_not_be_written_is_told(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    result = invoke("db", "migrate", "--store", f"sqlite:///{blocked}/tenure.db")
    assert result.exit_code == 5
    assert os.strerror(17) in result.stderr or os.strerror(20) in result.stderr


def test_a_store_has_to_be_named() -> None:
    result = invoke("db", "status")
    assert result.exit_code == 2
    assert "--store" in result.stderr
