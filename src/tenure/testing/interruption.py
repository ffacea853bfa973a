"""Raises ``Stopped`` in code that runs in one thread, asked for by another."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from tenure.sdk.activity.context import Stopped

_set_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc
_set_exception.argtypes = (ctypes.c_ulong, ctypes.py_object)
_set_exception.restype = ctypes.c_int


class Interruption:
    """A block that can be interrupted once; made in the thread that runs it."""

    def __init__(self) -> None:
        """Belong to this thread."""
        self._thread_id = threading.get_ident()
        # The code that is interrupted may hold it: its heartbeat asks for the stop.
        self._lock = threading.RLock()
        self._is_open = False
        self._is_asked = False
        self._is_raised = False
        self._shield_depth = 0

    def __enter__(self) -> Self:
        self._is_open = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let nothing be raised any more; what is on its way arrives here and is dropped."""
        while True:
            try:
                with self._lock:
                    self._is_open = False
                # Taking an exception back would leave the interpreter looking for it, which a
                # tracer such as that of coverage makes an endless loop of. It comes at a jump.
                for _ in range(2):
                    pass
            except Stopped:
                continue
            return

    def ask(self) -> None:
        """Ask for the interruption, from any thread; it comes at the next bytecode."""
        with self._lock:
            self._is_asked = True
            is_elsewhere = threading.get_ident() != self._thread_id
            if is_elsewhere and self._take():
                _set_exception(self._thread_id, ctypes.py_object(Stopped))

    def check(self) -> None:
        """Raise what was asked for, in the thread itself."""
        with self._lock:
            is_due = self._is_asked and self._take()
        if is_due:
            raise Stopped

    @contextlib.contextmanager
    def shield(self) -> Iterator[None]:
        """Keep the interruption until the block ends."""
        with self._lock:
            self._shield_depth += 1
        try:
            yield
        finally:
            with self._lock:
                self._shield_depth -= 1
        self.check()

    def _take(self) -> bool:
        """Take the right to raise, which only one gets."""
        if not self._is_open or self._is_raised or self._shield_depth:
            return False
        self._is_raised = True
        return True
