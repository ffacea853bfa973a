"""Logs: their two forms, the libraries in them, and what never gets into them."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import pty
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from tenure.api.guard.redaction import REDACTED, shown_error, shown_value
from tenure.api.log import configure_logging
from tenure.core.worker.record import Worker
from tenure.errors import InvalidArgument, NotFound
from tests.api.log_canary import KEY, TOKEN
from tests.bounds import LONG_WORK_S
from tests.logs import logging_left_as_it_was
from tests.postgres import PostgresServer
from tests.secret_scan import CANARY

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def other_logs() -> Iterator[None]:
    """Leave logging as it was."""
    with logging_left_as_it_was():
        yield


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_line_of_json_with_its_fields() -> None:
    stream = io.StringIO()
    configure_logging("json", "info", stream=stream)
    log = structlog.get_logger("tenure.test")
    log.info("task.finished", task_id="019b", attempt=2, is_last=True, state=None)
    log.debug("not.wanted")
    (line,) = lines(stream)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "task.finished",
        "task_id": "019b",
        "attempt": 2,
        "is_last": True,
        "state": None,
        "level": "info",
        "logger": "tenure.test",
    }


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_value_cannot_begin_a_line_of_its_own_or_speak_to_the_terminal(form: Any) -> None:
    stream = io.StringIO()
    configure_logging(form, "info", stream=stream)
    bad = 'x\n{"event": "forged"}\r\x1b[31mred\x9b\u2028'
    structlog.get_logger("tenure.test").warning("name.refused", name=bad)
    logging.getLogger("uvicorn.error").error("path %s", bad)
    text = stream.getvalue()
    assert len(text.splitlines()) == 2
    assert not any(each in text for each in ("\x1b", "\r", "\x9b"))


def test_where_nobody_looks_logs_are_json_and_without_colour() -> None:
    stream = io.StringIO()
    configure_logging("auto", "info", stream=stream)
    structlog.get_logger("tenure.test").info("seen")
    assert lines(stream)[0]["event"] == "seen"
    stream = io.StringIO()
    configure_logging("text", "info", stream=stream)
    structlog.get_logger("tenure.test").info("seen", queue="mail")
    assert "queue=mail" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_on_a_terminal_logs_are_coloured_text() -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        configure_logging("auto", "info", stream=terminal)
        structlog.get_logger("tenure.test").info("seen", queue="mail")
        terminal.flush()
        text = os.read(ours, 4_096).decode()
        configure_logging("json", "info", stream=terminal)
        structlog.get_logger("tenure.test").info("seen")
        terminal.flush()
        plain = os.read(ours, 4_096).decode()
    os.close(ours)
    assert "\x1b[" in text
    assert json.loads(plain)["event"] == "seen"


def test_libraries_speak_in_the_same_form_and_only_when_it_matters() -> None:
    stream = io.StringIO()
    configure_logging("json", "info", stream=stream)
    for name in ("uvicorn.error", "grpc._cython", "asyncpg", "asyncio"):
        logging.getLogger(name).info("busy")
        logging.getLogger(name).warning("%s of %d", "two", 3)
    logging.getLogger("other").info("heard")
    found = [(line["logger"], line["event"]) for line in lines(stream)]
    assert found == [
        ("uvicorn.error", "two of 3"),
        ("grpc._cython", "two of 3"),
        ("asyncpg", "two of 3"),
        ("asyncio", "two of 3"),
        ("other", "heard"),
    ]


def test_context_that_was_bound_is_in_every_event() -> None:
    stream = io.StringIO()
    configure_logging("json", "info", stream=stream)
    with structlog.contextvars.bound_contextvars(request_id="r1"):
        structlog.get_logger("tenure.test").info("seen")
    assert lines(stream)[0]["request_id"] == "r1"


def test_an_exception_shows_where_it_came_from_and_no_values() -> None:
    stream = io.StringIO()
    configure_logging("json", "info", stream=stream)
    log = structlog.get_logger("tenure.test")

    def deep(secret: str) -> None:
        try:
            os.environ[secret]
        except KeyError as error:
            raise NotFound("Task 7 was not found.") from error

    try:
        deep(CANARY)
    except NotFound:
        log.exception("request.failed")
    (line,) = lines(stream)
    trace = line["exception"].splitlines()
    assert trace[0] == "NotFound: Task 7 was not found."
    assert "caused by KeyError" in trace
    assert any("test_log.py" in each and "in deep" in each for each in trace)
    assert CANARY not in stream.getvalue()


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("count", 3, 3),
        ("ids", ("a", "b"), ["a", "b"]),
        ("INPUT", 3, REDACTED),
        ("token", 3, REDACTED),
        ("task_token", "x", REDACTED),
        ("Authorization", "x", REDACTED),
        ("dsn", "x", REDACTED),
        ("input_bytes", 3, 3),
        ("raw", b"x", "[bytes]"),
        ("worker", Worker("i", "n", "q", ("t",), "k", 0), "[Worker]"),
        ("error", ValueError("x"), "ValueError"),
        ("error", OSError(2, "No such file", "/secret"), "FileNotFoundError: No such file"),
        ("url", "postgresql://u:p@ss@h:1/d", "postgresql://u:***@h:1/d"),
        (
            "url",
            "postgresql://h/d?user=u&password=p&ssl=on",
            "postgresql://h/d?user=u&password=***&ssl=on",
        ),
        ("text", "host=h password='p q' user=u", "host=h password=*** user=u"),
        ("text", "authorization: bearer abc.def", "authorization: bearer ***"),
        ("text", f"key tnr_{'a' * 16}_{'b-_' * 14}c.", f"key tnr_{'a' * 16}_***."),
        ("request_id", f"tnr_{'a' * 16}_{'b' * 43}", f"tnr_{'a' * 16}_***"),
        ("text", "a" * 5_000, "a" * 2_000 + "…"),
        ("deep", {"a": {"b": {"c": {"d": {"e": 1}}}}}, {"a": {"b": {"c": {"d": "[dict]"}}}}),
    ],
)
def test_what_is_shown_of_a_field(key: str, value: object, shown: object) -> None:
    assert shown_value(key, value) == shown


def test_our_own_errors_keep_their_message_on_one_line() -> None:
    assert shown_error(NotFound("Task\n7.")) == "NotFound: Task\\n7."


@pytest.mark.parametrize(("form", "level"), [("xml", "info"), ("json", "loud"), ("json", "")])
def test_a_bad_setting_is_named(form: Any, level: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        configure_logging(form, level)
    assert caught.value.fields["field"] in {"log-format", "log-level"}


@pytest.mark.parametrize("form", ["json", "text"])
async def test_a_secret_that_goes_everywhere_is_in_no_log(
    postgres: PostgresServer, form: str
) -> None:
    name = postgres.create_database()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.api.log_canary", form, postgres.dsn(name)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(LONG_WORK_S):
        output, _ = await process.communicate()
    postgres.drop_database(name)
    text, _, secrets = output.decode().rpartition("SECRETS ")
    assert process.returncode == 0, secrets[-2_000:]
    for event in (
        *("batch.failed", "heartbeats.failed", "store.lost", "request.refused", "store.failed"),
        *("fields", "group.failed", "Task exception was never retrieved", "done"),
        *("key.created", "key.refused"),
    ):
        assert event in text, event
    made = secrets.split()
    assert len(made) == 2
    for secret in (CANARY, str(TOKEN), KEY.split("_", 2)[2], *made):
        assert secret not in text
