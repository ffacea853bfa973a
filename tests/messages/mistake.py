"""A mistake: what somebody does, how to do it for real, and in which part of the page it stands."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from tests.messages.scene import Scene

Provoke = Callable[[Scene], str]


class Mistake(NamedTuple):
    """One row of the page. ``provoke`` makes the mistake and returns what the user reads."""

    section: str
    what: str
    code: str
    provoke: Provoke

    @property
    def name(self) -> str:
        """How a test calls it."""
        return self.provoke.__name__


SECTIONS: Final = (
    "Declaring activities",
    "Connecting",
    "Enqueueing and waiting",
    "Workflows",
    "Running workers",
    "On the command line",
    "Running a server",
)
MISTAKES: Final[list[Mistake]] = []


def mistake(section: str, what: str, code: str) -> Callable[[Provoke], Provoke]:
    """Add a mistake to a section of the page, behind those that are there."""
    assert section in SECTIONS

    def add(provoke: Provoke) -> Provoke:
        MISTAKES.append(Mistake(section, what, code, provoke))
        return provoke

    return add


def logged(action: Callable[[], object]) -> str:
    """Return what a mistake writes to the log of Tenure, line by line."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{record.levelname} {record.name}: {record.getMessage()}")

    handler, log = Keep(), logging.getLogger("tenure")
    log.addHandler(handler)
    try:
        action()
    finally:
        log.removeHandler(handler)
    return "\n".join(lines)


def raised(action: Callable[[], object]) -> str:
    """Return what Python shows at the end of a traceback, after a mistake in code."""
    try:
        action()
    except Exception as error:  # noqa: BLE001 (whatever it raises is what the user reads)
        return f"{type(error).__name__}: {error}"
    raise AssertionError("it raised nothing")
