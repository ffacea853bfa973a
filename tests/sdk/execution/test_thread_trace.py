"""Where another thread is, read while it runs."""

from __future__ import annotations

import threading
import time

from tenure.sdk.worker.execution.thread_trace import stack_of

MANY = 110


def test_the_innermost_call_comes_first() -> None:
    leave = threading.Event()

    def inner() -> None:
        leave.wait()

    thread = threading.Thread(target=inner)
    thread.start()
    try:
        assert thread.ident is not None
        deadline = time.monotonic() + 10
        lines: list[str] = []
        while not any(" in inner" in line for line in lines) and time.monotonic() < deadline:
            lines = stack_of(thread.ident) or []
        names = [line.rpartition(" in ")[2] for line in lines]
        assert names.index("wait") < names.index("inner") < names.index("run")
    finally:
        leave.set()
        thread.join()


def test_a_thread_that_is_gone_or_behind_a_hundred_others_is_not_known() -> None:
    leave = threading.Event()
    threads = [threading.Thread(target=leave.wait) for _ in range(MANY)]
    for thread in threads:
        thread.start()
    try:
        first, last = threads[0].ident, threads[-1].ident
        assert first is not None
        assert last is not None
        assert stack_of(first) is None
        assert stack_of(last) is not None
    finally:
        leave.set()
        for thread in threads:
            thread.join()
    assert stack_of(last) is None
