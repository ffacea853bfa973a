"""Logs of a worker process: short lines for people, unless the program has set up its own."""

from __future__ import annotations

import logging
import sys
from typing import Final

import click

from tenure.cli.show.text import clean

_COLOURS: Final = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red", "DEBUG": "cyan"}
# What these say below a warning is about themselves.
_TALKATIVE: Final = ("asyncio", "grpc")


class _Formatter(logging.Formatter):
    """Time, level and text; nothing in the text can speak to the terminal."""

    def __init__(self, *, has_colours: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S")
        self._has_colours = has_colours

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        level = f"{record.levelname.lower():<8}"
        if self._has_colours and record.levelname in _COLOURS:
            level = click.style(level, fg=_COLOURS[record.levelname])
        return f"{record.asctime} {level} {clean(record.message)}"

    def formatException(self, ei: object) -> str:  # noqa: N802 (logging's name)
        return clean(super().formatException(ei))  # type: ignore[arg-type]


def configure(*, is_quiet: bool = False, is_verbose: bool = False) -> None:
    """Write logs to stderr, unless the module that was loaded has set up logs of its own."""
    level = logging.DEBUG if is_verbose else logging.WARNING if is_quiet else logging.INFO
    root = logging.getLogger()
    if root.handlers:
        if is_quiet or is_verbose:
            logging.getLogger("tenure").setLevel(level)
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(has_colours=sys.stderr.isatty()))
    root.handlers = [handler]
    root.setLevel(level)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
