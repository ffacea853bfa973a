"""What engines log: nothing is printed, and an error that an engine hides ends the world."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, MutableMapping
from typing import Any

import structlog

from tenure.errors import TenureError
from tenure.store.failure import StoreError

_listeners: list[Callable[[BaseException], None]] = []


def is_harmless(error: BaseException) -> bool:
    """Tell whether an error is one that a party may meet."""
    return isinstance(error, TenureError | StoreError)


def _hear(_logger: object, _name: str, event: MutableMapping[str, Any]) -> Any:
    error = sys.exc_info()[1]
    if error is not None and not is_harmless(error):
        _listeners[-1](error)
    elif error is None:
        _listeners[-1](AssertionError(f"an engine logged {event}"))
    raise structlog.DropEvent


def listen(listener: Callable[[BaseException], None]) -> None:
    """Send errors that engines log to the world that runs now."""
    _listeners[:] = [listener]
    structlog.configure(
        processors=[_hear],
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        cache_logger_on_first_use=False,
    )
