"""Threads that are started when they are needed, and reused.

Whatever is submitted wakes at most one thread at a time, which wakes the next one before it begins
to work. So a burst of quick items is done by few threads and without a crowd at the interpreter's
lock, and an item behind one that blocks is never kept waiting.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
_log = logging.getLogger("tenure.worker")


class Pool(Generic[T]):
    """At most ``limit`` threads that process items; further items wait."""

    def __init__(self, name: str, limit: int, serve: Callable[[T], None]) -> None:
        """Start nothing yet."""
        self._names = (f"{name}-{number}" for number in itertools.count(1))
        self._limit = limit
        self._serve = serve
        self._lock = threading.Lock()
        self._line: deque[T] = deque()
        # Each idle thread waits at a gate of its own; the last one that became idle is woken first.
        self._idle: list[threading.Lock] = []
        self._thread_count = 0
        self._is_waking = False
        self._is_closed = False

    def submit(self, item: T) -> None:
        """Have an item served as soon as there is a thread for it."""
        self._line.append(item)
        self._wake()

    def withdraw(self, item: T) -> bool:
        """Take an item out of the line; False if it is being served."""
        try:
            self._line.remove(item)
        except ValueError:
            return False
        return True

    def close(self) -> None:
        """Let the threads end, each when it is idle."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for gate in idle:
            gate.release()

    def _wake(self) -> None:
        """Wake one more thread, or start it, unless one is just waking up."""
        with self._lock:
            if self._is_waking or not self._line:
                return
            gate = self._idle.pop() if self._idle else None
            if gate is None and self._thread_count >= self._limit:
                return
            self._is_waking = True
            if gate is None:
                self._thread_count += 1
        if gate is None:
            self._start_thread()
        else:
            gate.release()

    def _start_thread(self) -> None:
        try:
            threading.Thread(target=self._work, name=next(self._names), daemon=True).start()
        except RuntimeError:
            # The system has no more threads. The existing ones process the rest.
            _log.exception("A thread for activities could not be started.")
            with self._lock:
                self._thread_count -= 1
                self._is_waking = False

    def _work(self) -> None:
        gate = threading.Lock()
        gate.acquire()
        self._is_waking = False
        while True:
            try:
                item = self._line.popleft()
            except IndexError:
                if not self._rest(gate):
                    return
                continue
            if self._line:
                self._wake()
            try:
                self._serve(item)
            except Exception:
                # A bug of the SDK. The thread continues with the next item.
                _log.exception("A thread for activities failed.")
            # The item may be large, and the next one may come much later.
            del item

    def _rest(self, gate: threading.Lock) -> bool:
        """Wait until there may be work; False when there will be none."""
        with self._lock:
            if self._line:
                return True
            if self._is_closed:
                self._thread_count -= 1
                return False
            self._idle.append(gate)
        gate.acquire()
        self._is_waking = False
        return True
