"""The child process of a worker: runs one activity at a time, in its main thread.

Started fresh with ``python -m``, never forked, and without gRPC. It ends when its worker is gone:
the kernel tells it where it can, and the end of a pipe everywhere. A stop arrives on that pipe and
becomes a signal to the main thread, so that it also ends a system call that waits.
"""

from __future__ import annotations

import contextlib
import contextvars
import faulthandler
import importlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import Any, Final

import msgspec

from tenure.sdk.activity.context import ActivityContext, Info, Stopped, StopReason
from tenure.sdk.activity.definition import Activity
from tenure.sdk.payload import Converter
from tenure.sdk.worker.execution import attempt, sync_call
from tenure.sdk.worker.execution.attempt import BadSetupError, Ending
from tenure.sdk.worker.execution.frame import (
    STOP,
    Boot,
    ChildBeat,
    Done,
    Frames,
    Order,
    Run,
    Taken,
    write,
)
from tenure.sdk.worker.execution.task_heartbeat import check_beat
from tenure.v1 import task_pb2

_REASONS: Final = list(StopReason)
_PR_SET_PDEATHSIG: Final = 1
# A loop that sends a heartbeat at each step must not flood the worker. A crash can lose this much.
_BEAT_INTERVAL_S: Final = 0.01
# If memory runs out, the kernel should kill a child and not the worker with its lease.
_OOM_SCORE: Final = "300"


class ChildExecution(ActivityContext):
    """An attempt in this process. ``Stopped`` is raised by the handler of a signal."""

    def __init__(self, host: ChildHost, run: Run, activity: Activity[..., Any]) -> None:
        """Prepare what the worker has sent."""
        self.task = task_pb2.AssignedTask.FromString(run.task)
        super().__init__(None, Converter(), attempt.details_of(self.task))
        self.activity = activity
        self._host = host
        self._run = run
        self._is_armed = False
        self._is_raised = False
        self._shield_depth = 0

    def make_info(self) -> Info:
        """Return the attempt as its activity sees it."""
        return attempt.info_of(self.task, self._run.namespace, self._run.worker_id)

    def send_beat(
        self, details: bytes | None, percent: float | None = None, message: str | None = None
    ) -> None:
        """Report progress."""
        check_beat(details, percent, message)
        # An exception in the middle of a frame would break all later frames.
        with self.shield():
            self._host.beat(ChildBeat(details, percent, message))

    @contextlib.contextmanager
    def shield(self) -> Generator[None]:
        """Keep the stop until the block ends."""
        is_main = threading.current_thread() is threading.main_thread()
        self._shield_depth += is_main
        try:
            yield
        finally:
            self._shield_depth -= is_main
            if is_main:
                self.interrupt()

    def arm(self) -> None:
        """Allow the stop to be raised from now on."""
        self._is_armed = True
        self.interrupt()

    def disarm(self) -> None:
        """Do not allow it to be raised any more."""
        self._is_armed = False

    def interrupt(self) -> None:
        """Raise the stop if there is one and it may be raised; in the main thread."""
        if self.stop_reason is None or self._is_raised:
            return
        if self._is_armed and not self._shield_depth:
            self._is_raised = True
            raise Stopped


class ChildHost:
    """The process: its orders and its reports."""

    def __init__(self, connection: socket.socket) -> None:
        """Speak with the worker on ``connection``."""
        self._connection = connection
        self._lock = threading.Lock()
        self._activities: dict[tuple[str, str], Activity[..., Any]] = {}
        self._current: tuple[int, ChildExecution] | None = None
        self._stop: tuple[int, StopReason] | None = None
        self._waiting: ChildBeat | None = None
        self._beat_at_s = 0.0

    # In the main thread.

    def run(self, order: Run) -> Ending:
        """Run one attempt to its end."""
        task = task_pb2.AssignedTask.FromString(order.task)
        try:
            activity = self._find(order.module, order.name)
        except BadSetupError as error:
            return attempt.ended_by(task, error, Converter())
        execution = ChildExecution(self, order, activity)
        # The activity before this one may have set a handler of its own.
        self.listen_to_signals()
        self._current = (order.number, execution)
        # A stop that came earlier is seen here; a later one finds the run.
        self._apply_stop()
        ending = contextvars.copy_context().run(sync_call.call, execution)
        self._current = None
        return ending

    def listen_to_signals(self) -> None:
        """Let a signal raise the stop."""
        signal.signal(signal.SIGTERM, self._on_signal)

    def finish(self, ending: Ending) -> None:
        """Report the end; the last heartbeat goes before it."""
        with self._lock:
            if self._waiting is not None:
                write(self._connection, self._waiting)
                self._waiting = None
            self._beat_at_s = 0.0
            write(self._connection, Done(None if ending is None else ending.SerializeToString()))

    def beat(self, beat: ChildBeat) -> None:
        """Send a heartbeat, or keep the newest if the last one was sent just now."""
        with self._lock:
            last = self._waiting
            if last is not None:
                beat = ChildBeat(
                    last.details if beat.details is None else beat.details,
                    last.percent if beat.percent is None else beat.percent,
                    last.message if beat.message is None else beat.message,
                )
            now_s = time.monotonic()
            self._waiting = beat
            if now_s >= self._beat_at_s:
                self._beat_at_s = now_s + _BEAT_INTERVAL_S
                self._waiting = None
                write(self._connection, beat)

    def _find(self, module_name: str, name: str) -> Activity[..., Any]:
        """Return the activity that a module declares under a name."""
        known = self._activities.get((module_name, name))
        if known is not None:
            return known
        try:
            module = importlib.import_module(module_name)
        except BaseException as error:
            problem = f"Module {module_name} cannot be imported in a fresh process: {error!r}"
            raise BadSetupError(problem) from error
        for each in vars(module).values():
            if isinstance(each, Activity) and each.name == name:
                self._activities[module_name, name] = each
                return each
        raise BadSetupError(
            f"Module {module_name} has no activity {name!r} when a fresh process imports it."
        )

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        # Without a stop for the current run, the signal was meant for another one.
        if self._current is not None:
            self._current[1].interrupt()

    # In the thread that listens.

    def listen(self, pipe: int) -> None:
        """Read stops until the worker is gone."""
        # Each stop is short, so a pipe never splits it.
        while len(data := os.read(pipe, STOP.size)) == STOP.size:
            number, place = STOP.unpack(data)
            self._stop = (number, _REASONS[place])
            self._apply_stop()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        os._exit(1)

    def _apply_stop(self) -> None:
        current, stop = self._current, self._stop
        if current is not None and stop is not None and current[0] == stop[0]:
            current[1].stop_reason = stop[1]


def serve(connection: socket.socket, pipe: int) -> None:
    """Run what arrives until the worker closes the connection."""
    frames = Frames(connection)
    orders: msgspec.msgpack.Decoder[Order] = msgspec.msgpack.Decoder(Order)
    host = ChildHost(connection)
    host.listen_to_signals()
    threading.Thread(target=host.listen, args=(pipe,), name="tenure-stops", daemon=True).start()
    while (order := frames.read(orders)) is not None:
        if isinstance(order, Boot):
            _set_up(order)
        else:
            write(connection, Taken())
            host.finish(host.run(order))


def _set_up(boot: Boot) -> None:
    sys.path[:] = boot.path
    # It was only there to find this module.
    if boot.python_path is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = boot.python_path


def _die_with(parent: int) -> None:
    """Have the kernel end this process with its worker, where it can."""
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415 (not needed elsewhere)

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE, encoding="ascii")
    if os.getppid() != parent:
        os._exit(1)


def main() -> None:
    """Serve the worker that has started this process with its two files and its own id."""
    connection, pipe, parent = map(int, sys.argv[1:])
    _die_with(parent)
    # Not for programs that the activities start.
    for each in (connection, pipe):
        os.set_inheritable(each, False)  # noqa: FBT003 (it takes no keyword)
    faulthandler.enable()
    with contextlib.suppress(ConnectionError):
        serve(socket.socket(fileno=connection), pipe)


if __name__ == "__main__":
    main()
