"""Mistakes where an activity is declared."""

from __future__ import annotations

import socket
from datetime import datetime
from typing import Any

from tenure import activity
from tests.messages.app import greet
from tests.messages.mistake import mistake, raised
from tests.messages.scene import Scene

_SECTION = "Declaring activities"
# The mistakes are those that a type checker finds, too.
declare: Any = activity
typed: Any = greet


def hello(name: str) -> str:
    return name


@mistake(_SECTION, "No timeout", "@activity")
def no_parentheses(_: Scene) -> str:
    return raised(lambda: declare(hello))


@mistake(_SECTION, "No timeout", '@activity(queue="mail")')
def no_timeout(_: Scene) -> str:
    return raised(lambda: declare(queue="mail")(hello))


@mistake(_SECTION, "A duration that cannot be read", '@activity(start_to_close="30 seconds")')
def bad_duration(_: Scene) -> str:
    return raised(lambda: declare(start_to_close="30 seconds")(hello))


@mistake(
    _SECTION,
    "Timeouts that contradict each other",
    '@activity(start_to_close="10s", heartbeat_timeout="1m")',
)
def contradiction(_: Scene) -> str:
    return raised(lambda: declare(start_to_close="10s", heartbeat_timeout="1m")(hello))


@mistake(_SECTION, "A number as retry policy", '@activity(start_to_close="30s", retry=3)')
def retry_number(_: Scene) -> str:
    return raised(lambda: declare(start_to_close="30s", retry=3)(hello))


@mistake(_SECTION, "A typo in an option", '@activity(start_to_close="30s", retires=…)')
def unknown_option(_: Scene) -> str:
    return raised(lambda: declare(start_to_close="30s", retires=3)(hello))


@mistake(_SECTION, "A parameter that cannot travel", "def send(line: socket.socket): …")
def no_json(_: Scene) -> str:
    def send(line: socket.socket) -> None: ...

    return raised(lambda: declare(start_to_close="30s")(send))


@mistake(_SECTION, "A parameter with a star", "def send(*names: str): …")
def star(_: Scene) -> str:
    def send(*names: str) -> None: ...

    return raised(lambda: declare(start_to_close="30s")(send))


@mistake(_SECTION, "A time without time zone", "greet.with_options(run_at=datetime(2030, 1, 31))")
def no_time_zone(_: Scene) -> str:
    return raised(lambda: greet.with_options(run_at=datetime(2030, 1, 31)))  # noqa: DTZ001 (the mistake)


@mistake(_SECTION, "A call outside of an activity", "activity.info()")
def outside(_: Scene) -> str:
    return raised(activity.info)
