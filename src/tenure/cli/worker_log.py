"""Logs of a worker process, for people or as JSON, unless the program has set up its own."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final, Literal

import click

from tenure.cli.show.text import clean

Format = Literal["text", "json"]
_COLOURS: Final = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red", "DEBUG": "cyan"}
# Below warnings these log only about themselves.
_TALKATIVE: Final = ("asyncio", "grpc")
_STANDARD: Final = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})


class _TextFormatter(logging.Formatter):
    """Time, level and text. The text cannot control the terminal or begin a new entry."""

    def __init__(self, *, has_colours: bool) -> None:
        super().__init__()
        self._has_colours = has_colours

    def format(self, record: logging.LogRecord) -> str:
        level = f"{record.levelname.lower():<8}"
        if self._has_colours and record.levelname in _COLOURS:
            level = click.style(level, fg=_COLOURS[record.levelname])
        said = clean(record.getMessage() + _trace_of(self, record))
        first, *others = said.splitlines() or [""]
        indented = (f"  {line}".rstrip() for line in others)
        return "\n".join((f"{_instant(record)} {level} {first}", *indented))


class _JsonFormatter(logging.Formatter):
    """One JSON object per line, with the field names of the server's logs."""

    def format(self, record: logging.LogRecord) -> str:
        more = {key: value for key, value in vars(record).items() if key not in _STANDARD}
        trace = _trace_of(self, record).strip()
        if trace:
            more["exception"] = trace
        said = record.getMessage()
        if more.get("stack_trace"):
            said = said.removesuffix(f"\n{more['stack_trace']}")
        event = {
            "timestamp": _instant(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": said,
            **{key: value for key, value in more.items() if value != ""},
        }
        return json.dumps(event, default=str)


def configure(form: Format = "text", *, is_quiet: bool = False, is_verbose: bool = False) -> None:
    """Write logs to stderr, unless the loaded module has configured logging itself."""
    level = logging.DEBUG if is_verbose else logging.WARNING if is_quiet else logging.INFO
    root = logging.getLogger()
    if root.handlers:
        if is_quiet or is_verbose:
            logging.getLogger("tenure").setLevel(level)
        return
    handler = logging.StreamHandler(sys.stderr)
    text = _TextFormatter(has_colours=sys.stderr.isatty())
    handler.setFormatter(_JsonFormatter() if form == "json" else text)
    root.handlers = [handler]
    root.setLevel(level)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)


def _instant(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _trace_of(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """Return a line break and the traceback of a logged exception; empty without one."""
    return f"\n{formatter.formatException(record.exc_info)}" if record.exc_info else ""
