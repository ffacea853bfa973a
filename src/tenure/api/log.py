"""Logs of a server process: one line per event, for people on a terminal, as JSON for machines.

Every line passes ``redacted`` first. Known names of payloads and secrets are blanked, bytes and
records are never shown, and of a foreign exception only its type and its place: its message may
quote user input.
"""

from __future__ import annotations

import logging
import sys
from typing import Final, Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from tenure.api.guard.redaction import escaped, first_line, scrubbed, shown_traceback, shown_value
from tenure.errors import InvalidArgument

Format = Literal["auto", "text", "json"]
# Their messages below a warning are only about themselves.
_TALKATIVE: Final = ("asyncio", "asyncpg", "grpc", "uvicorn")


def configure_logging(
    form: Format = "auto", level: str = "info", *, stream: TextIO | None = None
) -> None:
    """Send all logs of this process to ``stream`` (stderr); ``auto`` is text on a terminal only."""
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise InvalidArgument("log-level must be debug, info, warning or error", field="log-level")
    if form not in ("auto", "text", "json"):
        raise InvalidArgument("log-format must be auto, text or json", field="log-format")
    stream = stream or sys.stderr
    is_terminal = stream.isatty()
    is_json = form == "json" or (form == "auto" and not is_terminal)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_formatter(is_json=is_json, has_colors=is_terminal))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(number)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(number if number <= logging.DEBUG else logging.WARNING)
    # A handler that fails would print the whole record.
    logging.raiseExceptions = False
    structlog.configure(
        processors=[*_shared(), structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


def _shared() -> list[Processor]:
    """Return the processors for our events and those of libraries."""
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]


def _formatter(*, is_json: bool, has_colors: bool) -> logging.Formatter:
    last: list[Processor]
    if is_json:
        last = [structlog.processors.JSONRenderer()]
    else:
        # Not the default for exceptions, which shows the values of local variables.
        renderer = structlog.dev.ConsoleRenderer(
            colors=has_colors, exception_formatter=structlog.dev.plain_traceback
        )
        last = [_escape, renderer]
    return structlog.stdlib.ProcessorFormatter(
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, redact, *last],
        foreign_pre_chain=[*_shared(), _cut_foreign],
    )


def redact(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
    """Remove everything that may be a payload or a secret."""
    del logger, name
    error = event.pop("exc_info", None)
    event.pop("stack_info", None)
    clean: EventDict = {key: shown_value(key, value) for key, value in event.items()}
    if error:
        clean["exception"] = shown_traceback(error)
    return clean


def _escape(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
    """Escape line breaks and terminal commands; JSON does it by itself."""
    del logger, name
    return {
        key: escaped(value) if isinstance(value, str) and key != "exception" else value
        for key, value in event.items()
    }


def _cut_foreign(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
    """Keep the first line of a library's message; after it asyncio shows whole objects."""
    del logger, name
    event["event"] = scrubbed(first_line(str(event["event"])))
    return event
