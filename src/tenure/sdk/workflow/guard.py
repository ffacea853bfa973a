"""Refuses operations in a workflow that cannot be durable, and names the line."""

from __future__ import annotations

import functools
import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal, SupportsIndex

from tenure.sdk.workflow.source_line import calling_line

Guard = Literal["refuse", "warn", "off"]

_log = logging.getLogger("tenure.workflow")
_BLOCKING: Final = {
    "time.sleep": "blocks the thread (time.sleep): await ctx.sleep(…) instead",
    "socket.connect": "connects a socket (socket.connect): put it into a step, await ctx.step(…)",
    "subprocess.Popen": "starts a process (subprocess.Popen): put it into a step, "
    "await ctx.step(…)",
}


class NotDurable(Exception):
    """A workflow used something that would not survive its process; see its message."""


class _Body(threading.local):
    guard: Guard | None = None
    is_plain = False


_body = _Body()


def refusal(what: str, line: str | None = None) -> NotDurable:
    """Return the error for a use of ``what``, an operation that belongs into a step."""
    where = line or calling_line()
    message = f"{where} uses {what}, which would not survive this process: put it into a step, "
    return NotDurable(f"{message}await ctx.step(…)")


@contextmanager
def guarded(guard: Guard, *, is_plain: bool = False) -> Iterator[None]:
    """Watch this thread while it runs a body; a plain one has no ``await``."""
    before = _body.guard, _body.is_plain
    _body.guard, _body.is_plain = guard, is_plain
    try:
        yield
    finally:
        _body.guard, _body.is_plain = before


@functools.cache
def install() -> None:
    """Begin to watch; an audit hook stays for the life of the process."""
    sys.addaudithook(_on_audit)
    if sys.version_info < (3, 13):
        # Earlier versions of Python do not tell their audit hooks of it.
        _watch_sleep()


def _watch_sleep() -> None:
    sleep = time.sleep

    def watched(seconds: float | SupportsIndex, /) -> None:
        _on_audit("time.sleep", ())
        sleep(seconds)

    time.sleep = watched


def _on_audit(event: str, _args: tuple[object, ...]) -> None:
    problem = _BLOCKING.get(event)
    if problem is None or _body.guard in (None, "off"):
        return
    if _body.is_plain:
        problem = problem.replace("await ", "")
    message = f"{calling_line()} {problem}"
    if _body.guard == "refuse":
        raise NotDurable(message)
    _log.warning("%s", message)
