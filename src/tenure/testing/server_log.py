"""Sends what the server of a test logs to ``logging``, where pytest shows it when a test fails."""

from __future__ import annotations

import threading
from typing import Final

import structlog

_lock: Final = threading.Lock()
_users = 0


def attach() -> None:
    """Begin, unless the program has set structlog up for itself; that is left alone."""
    global _users  # noqa: PLW0603 (structlog has one set-up per process as well)
    with _lock:
        if _users == 0 and structlog.is_configured():
            return
        _users += 1
        structlog.configure(
            processors=[
                structlog.stdlib.filter_by_level,
                structlog.processors.format_exc_info,
                structlog.processors.KeyValueRenderer(key_order=["event"]),
            ],
            wrapper_class=structlog.stdlib.BoundLogger,
            logger_factory=structlog.stdlib.LoggerFactory(),
            cache_logger_on_first_use=False,
        )


def detach() -> None:
    """End, when the last server has stopped."""
    global _users  # noqa: PLW0603 (structlog has one set-up per process as well)
    with _lock:
        if _users == 0:
            return
        _users -= 1
        if _users == 0:
            structlog.reset_defaults()
