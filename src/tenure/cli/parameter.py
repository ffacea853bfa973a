"""What the values of options mean, and the options that several commands share.

A function that reads a value raises ``BadParameter``; click adds the name of the option.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn, TypedDict, TypeVar

import click

from tenure.cli.help import ConnectionOption
from tenure.cli.show.text import parse_instant_ms
from tenure.core.duration import parse_duration_ms
from tenure.core.limits import PAYLOAD_BYTES_MAX

F = TypeVar("F", bound=Callable[..., object])
LIVE_STATES: Final = ("PENDING", "DISPATCHED", "RUNNING", "CANCELLING", "WAITING", "PAUSED")
TASK_STATES: Final = (*LIVE_STATES, "SUCCEEDED", "FAILED", "CANCELLED")
RUN_STATUSES: Final = (
    *("PENDING", "RUNNING", "SLEEPING", "WAITING", "PARKED", "PAUSED", "CANCELLING"),
    *("COMPLETED", "FAILED", "CANCELLED"),
)
WORKER_STATUSES: Final = ("ONLINE", "DRAINING", "OFFLINE")
NO_LIMIT: Final = "none"
# Of an attempt of a task that is given no timeout.
START_TO_CLOSE_MS: Final = 5 * 60_000


def examples(*lines: str) -> str:
    """Return the part of a help text that shows how a command is used."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def option(*names: str, **settings: object) -> Callable[[F], F]:
    """Declare an option whose help shows its variable and its default, if it has them."""
    is_set = settings.get("default") not in ("", None)
    shown = {"show_envvar": "envvar" in settings, "show_default": is_set or None}
    attributes: dict[str, Any] = {**settings, **shown}
    return click.option(*names, **attributes)


def duration_ms(text: str) -> int:
    """Read a duration such as ``30s``."""
    return _read(parse_duration_ms, text)


def delay_ms(text: str) -> int:
    """Read a duration that may be none: ``0s``."""
    return _read(functools.partial(parse_duration_ms, minimum=0), text)


def instant_ms(text: str) -> int:
    """Read an RFC 3339 instant."""
    return _read(parse_instant_ms, text)


def _read(parse: Callable[[str], int], text: str) -> int:
    try:
        return parse(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} {error}.") from None


def label(text: str) -> tuple[str, str]:
    """Read ``key=value``."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.BadParameter(f"{text!r} must be key=value.")
    return key, value


def json_payload(text: str) -> bytes:
    """Read JSON as it stands, from ``@file``, or from stdin when it is ``-``."""
    data = _payload_source(text)
    if len(data) > PAYLOAD_BYTES_MAX:
        _refuse_json(f"has {len(data):,} bytes; the limit is {PAYLOAD_BYTES_MAX:,}")
    try:
        json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, ValueError) else "it is nested too deep"
        _refuse_json(f"is not JSON: {reason}. Text needs double quotes: '\"text\"'")
    return data


def _payload_source(text: str) -> bytes:
    if text == "-":
        return sys.stdin.buffer.read(PAYLOAD_BYTES_MAX + 1)
    if not text.startswith("@"):
        return text.encode("utf-8", "surrogateescape")
    try:
        with Path(text[1:]).open("rb") as file:
            return file.read(PAYLOAD_BYTES_MAX + 1)
    except OSError as error:
        raise click.BadParameter(f"cannot read {text[1:]}: {error.strerror}.") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _refuse_json(problem: str) -> NoReturn:
    raise click.BadParameter(f"the value {problem}.")


def concurrency(text: str) -> int:
    """Read a limit: a number from 1, or ``none``."""
    if text == NO_LIMIT:
        return 0
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 2**31:
        raise click.BadParameter(f"{text!r} must be a number from 1, or {NO_LIMIT}.")
    return int(text)


def wait_options(function: F) -> F:
    """Add ``--wait`` and ``--timeout``."""
    timeout = click.option(
        "--timeout",
        "timeout_ms",
        metavar="DURATION",
        type=duration_ms,
        help="Stop waiting after this time, with exit code 124. Needs --wait.",
    )
    wait = click.option(
        "--wait", "is_waited", is_flag=True, help="Wait for the end and show the progress."
    )
    return wait(timeout(function))


def check_wait(*, is_waited: bool, timeout_ms: int | None) -> None:
    """Refuse a timeout of a wait that was not asked for."""
    if timeout_ms is not None and not is_waited:
        raise click.UsageError("--timeout needs --wait.")


def timeout_options(function: F) -> F:
    """Add the timeouts of a task."""
    for name, field, help_text in (
        ("--cancel-grace", "cancel_grace_ms", "Time to clean up after a cancel. [default: 30s]"),
        (
            "--heartbeat-timeout",
            "heartbeat_timeout_ms",
            "Longest time between heartbeats of an attempt.",
        ),
        ("--schedule-to-start", "schedule_to_start_ms", "Longest time until a worker starts it."),
        ("--schedule-to-close", "schedule_to_close_ms", "Longest time for all attempts together."),
        (
            "--start-to-close",
            "start_to_close_ms",
            "Longest time of one attempt. [default: 5m, unless --schedule-to-close is given]",
        ),
    ):
        function = click.option(name, field, metavar="DURATION", type=duration_ms, help=help_text)(
            function
        )
    return function


class PageOptions(TypedDict):
    """Which part of a list is wanted."""

    limit: int
    page_token: str
    is_all: bool


def page_options(function: F) -> F:
    """Add ``--limit``, ``--page-token`` and ``--all``."""
    limit = option("--limit", type=click.IntRange(1), default=20, help="Number of items to list.")
    token = click.option("--page-token", default="", help="Continue an earlier list.")
    everything = click.option("--all", "is_all", is_flag=True, help="List all items.")
    return limit(token(everything(function)))


def label_option(help_text: str) -> Callable[[F], F]:
    """Add ``--label``, which may be given several times."""
    return click.option(
        "--label", "labels", metavar="KEY=VALUE", type=label, multiple=True, help=help_text
    )


def store_option(function: F) -> F:
    """Add ``--store``."""
    return option(
        "--store",
        "store_url",
        metavar="URL",
        envvar="TENURE_STORE",
        required=True,
        help="The database: sqlite:///file.db or postgresql://user@host/database.",
    )(function)


def schema_option(function: F) -> F:
    """Add ``--schema``."""
    return option(
        "--schema",
        metavar="NAME",
        envvar="TENURE_SCHEMA",
        default="",
        help="The PostgreSQL schema of the tables. [default: tenure, or public if an earlier "
        "version created them there]",
    )(function)


def log_format_option(function: F) -> F:
    """Add ``--log-format``."""
    return option(
        "--log-format",
        envvar="TENURE_LOG_FORMAT",
        type=click.Choice(["text", "json"]),
        default="text",
        help="Format of the log on stderr.",
    )(function)


def http_option(function: F) -> F:
    """Add ``--http``, for what the server tells over HTTP alone."""
    return option(
        "--http",
        cls=ConnectionOption,
        envvar="TENURE_HTTP",
        default="",
        type=http_address,
        metavar="HOST:PORT,...",
        help="The HTTP address of the server. [default: port 7300 on the host of --target]",
    )(function)


def http_address(text: str) -> str:
    """Check the HTTP address of a server; empty is the usual one."""
    return target(text) if text else ""


def target(text: str) -> str:
    """Check the address of a server, or of several with commas between."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    for part in parts or [text]:
        if "://" in part and not part.startswith(("dns:", "unix:", "ipv4:", "ipv6:")):
            raise click.BadParameter(f"{part!r} is a URL: write HOST:PORT, such as 127.0.0.1:7301.")
        host, colon, port = part.rpartition(":")
        is_port = colon and host and port.isascii() and port.isdigit()
        if not part.startswith("unix:") and not is_port:
            raise click.BadParameter(f"{part!r} must be HOST:PORT, such as 127.0.0.1:7301.")
    return ",".join(parts)
