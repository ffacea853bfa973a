"""``--schema``: installations that share a PostgreSQL database and nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest

from tests.cli.conftest import invoke, read
from tests.cli.server import ServerProcess
from tests.postgres import PostgresServer


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    """Return the URL of an empty database whose sessions look in ``public`` alone."""
    return f"{postgres.dsn(postgres.create_database())}&search_path=public"


def test_servers_with_two_schemas_on_one_database_have_nothing_in_common(
    url: str, tmp_path: Path
) -> None:
    with (
        ServerProcess(url, tmp_path / "one", options=["--schema", "one"]) as one,
        ServerProcess(url, tmp_path / "two", options=["--schema", "two"]) as two,
    ):
        made = invoke("tasks", "enqueue", "mail", "--target", one.grpc, "-o", "json")
        assert made.exit_code == 0, made.output
        shown = read(invoke("tasks", "ls", "--target", one.grpc, "-o", "json"))
        assert [each["type"] for each in shown["tasks"]] == ["mail"]
        assert read(invoke("tasks", "ls", "--target", two.grpc, "-o", "json"))["tasks"] == []
        key = ("keys", "create", "--role", "admin", "--store", url)
        assert invoke(*key, env={"TENURE_SCHEMA": "two"}).exit_code == 0
        assert invoke("tasks", "ls", "--target", one.grpc).exit_code == 0
        assert invoke("keys", "ls", "--target", two.grpc).exit_code == 6


def test_the_database_commands_look_into_the_schema_that_is_named(url: str) -> None:
    assert invoke("db", "migrate", "--store", url, "--schema", "one").exit_code == 0
    shown = invoke("db", "status", "--store", url, env={"TENURE_SCHEMA": "one"})
    assert ", PostgreSQL schema one\n" in shown.stdout
    assert "pending: nothing" in shown.stdout
    status = read(invoke("db", "status", "--store", url, "--schema", "one", "-o", "json"))
    assert (status["schema"], status["pending"]) == ("one", [])
    check = read(invoke("db", "check", "--store", url, "--schema", "one", "-o", "json"))
    assert check["isVerified"] is True
    other = read(invoke("db", "status", "--store", url, "-o", "json"))
    assert (other["schema"], other["schemaVersion"]) == ("tenure", 0)


def test_the_database_commands_find_an_installation_in_public(url: str) -> None:
    assert invoke("db", "migrate", "--store", url, "--schema", "public").exit_code == 0
    status = read(invoke("db", "status", "--store", url, "-o", "json"))
    assert (status["schema"], status["pending"]) == ("public", [])
    assert invoke("db", "migrate", "--store", url, "--schema", "tenure").exit_code == 0
    for command in ("status", "migrate", "check"):
        refused = invoke("db", command, "--store", url)
        assert refused.exit_code == 4
        assert "Name one of them with --schema (TENURE_SCHEMA)." in refused.stderr


def test_a_role_that_may_not_make_the_schema_is_told_how_it_is_made(
    postgres: PostgresServer,
) -> None:
    url = postgres.dsn(postgres.create_database())
    asyncio.run(_execute(url, "CREATE ROLE no_schemas LOGIN"))
    refused = invoke("db", "migrate", "--store", url.replace("tenure@", "no_schemas@"))
    assert refused.exit_code == 6
    assert "permission denied for database" in refused.stderr
    assert "CREATE SCHEMA tenure AUTHORIZATION" in refused.stderr


async def _execute(url: str, sql: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(sql)
    await connection.close()


@pytest.mark.parametrize("command", ["status", "migrate", "check"])
def test_a_schema_that_cannot_be_is_refused(command: str, tmp_path: Path) -> None:
    for url, schema, message in (
        (f"sqlite:///{tmp_path}/tenure.db", "one", "A SQLite file has no schemas"),
        ("postgresql://tenure@db/tenure", "no name", "The schema must be a name"),
    ):
        refused = invoke("db", command, "--store", url, "--schema", schema)
        assert refused.exit_code == 2
        assert message in refused.stderr
        assert "Change --schema." in refused.stderr
