"""Where in the user's code something happened."""

from __future__ import annotations

import functools
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import PurePath
from types import FrameType
from typing import Final

_OWN: Final = ("tenure.sdk.", "tenure.testing.")
_LOOP: Final = "tenure.sdk.workflow.loop"
_LIBRARY: Final = sysconfig.get_path("stdlib")
_INSTALLED: Final = ("site-packages", "dist-packages")
UNKNOWN: Final = "unknown line"
# The code on another thread for which something is done.
_caller: ContextVar[FrameType | None] = ContextVar("tenure_workflow_caller", default=None)


def calling_line() -> str:
    """Return the line of user code that called, such as ``orders.py:41 in ship``."""
    return line_of(_caller.get() or sys._getframe(1))  # noqa: SLF001 (a documented name)


def line_of(frame: FrameType) -> str:
    """Return the line of user code that a frame is at, or that has called it."""
    return _first_line(_outwards(frame))


@contextmanager
def acting_for(frame: FrameType) -> Iterator[None]:
    """Take the code of a frame, on a thread that waits, for the one that calls."""
    _caller.set(frame)
    try:
        yield
    finally:
        _caller.set(None)


def waiting_line(awaitable: object) -> str:
    """Return the innermost line of user code at which a suspended coroutine waits."""
    return _first_line(reversed(list(_inwards(awaitable))))


def _first_line(frames: Iterator[FrameType]) -> str:
    for frame in frames:
        if is_users(frame):
            code = frame.f_code
            return f"{_file_name(code.co_filename)}:{frame.f_lineno} in {code.co_name}"
    return UNKNOWN


@functools.lru_cache(maxsize=1_024)
def _file_name(path: str) -> str:
    return PurePath(path).name


def is_users(frame: FrameType) -> bool:
    """Tell whether code is neither ours nor that of Python itself."""
    return _is_users_module(str(frame.f_globals.get("__name__", "")), frame.f_code.co_filename)


@functools.lru_cache(maxsize=4_096)
def _is_users_module(name: str, path: str) -> bool:
    if name.startswith(_OWN):
        return False
    if any(each in path for each in _INSTALLED):
        return True
    return not path.startswith((_LIBRARY, "<frozen"))


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield frames outwards; whoever runs the loop of a body is no caller of that body."""
    while frame is not None and not _runs_body(frame):
        yield frame
        frame = frame.f_back


def _runs_body(frame: FrameType) -> bool:
    return frame.f_code.co_name == "run_quiet" and frame.f_globals.get("__name__") == _LOOP


def _inwards(awaitable: object) -> Iterator[FrameType]:
    while awaitable is not None:
        frame = getattr(awaitable, "cr_frame", None) or getattr(awaitable, "gi_frame", None)
        if frame is not None:
            yield frame
        awaitable = getattr(awaitable, "cr_await", None) or getattr(awaitable, "gi_yieldfrom", None)
