"""``tenure db`` on both databases, with and without a server beside it."""

from __future__ import annotations

import os
from pathlib import Path

import apsw
import pytest

from tests.cli.conftest import invoke, read
from tests.cli.server import ServerProcess
from tests.postgres import PostgresServer


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
    assert "went from schema 0 to " in first.stdout
    again = invoke("db", "migrate", env={"TENURE_STORE": store_url})
    assert "is up to date" in again.stdout
    status = read(invoke("db", "status", "--store", store_url, "-o", "json"))
    assert status["schemaVersion"] == len(status["applied"]) > 0
    assert status["pending"] == []
    assert status["sizeBytes"] > 0
    shown = invoke("db", "status", "--store", store_url)
    assert "pending: nothing" in shown.stdout
    assert invoke("db", "check", "--store", store_url).stdout.endswith(" is sound.\n")
    assert read(invoke("db", "check", "--store", store_url, "-o", "json"))["ok"] is True
    assert read(invoke("db", "migrate", "--store", store_url, "-o", "json")) == status


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
    assert "Another Tenure server works on tenure.db" in refused.stderr


@pytest.mark.parametrize("command", ["status", "check"])
def test_a_file_that_is_not_there_is_not_found_and_not_made(command: str, tmp_path: Path) -> None:
    file = tmp_path / "missing.db"
    result = invoke("db", command, "--store", f"sqlite:///{file}")
    assert result.exit_code == 3
    assert "tenure db migrate" in result.stderr
    assert not file.exists()


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
