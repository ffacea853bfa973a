"""Runs activities in child processes that can be killed.

Each child runs one attempt at a time and is used again. A thread of the pool speaks with it while
it does: it starts the child, waits for what it reports, and sees it die.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from typing import Any, Final

import msgspec

from tenure.core.task.retry import ErrorCategory
from tenure.sdk.activity.context import StopReason
from tenure.sdk.activity.definition import Activity
from tenure.sdk.failure import make_error
from tenure.sdk.payload import Payload, PayloadError
from tenure.sdk.worker.execution import attempt
from tenure.sdk.worker.execution.attempt import BadInputError, Ending
from tenure.sdk.worker.execution.execution import Execution, Site
from tenure.sdk.worker.execution.frame import (
    STOP,
    Boot,
    BrokenFrame,
    ChildBeat,
    Done,
    Frames,
    Report,
    Run,
    write,
)
from tenure.sdk.worker.execution.thread_pool import Pool
from tenure.v1 import task_pb2

_REASONS: Final = list(StopReason)
# How soon a dead child is noticed if a process that it started keeps the socket open.
_LOOK_MS: Final = 500
_EXIT_S: Final = 2.0
_numbers: Final = itertools.count(1)


class ProcessExecution(Execution):
    """An attempt in a child process."""

    # Early enough that the server hears of it within its own grace period.
    grace_margin_s = 1.0

    def __init__(
        self,
        site: Site,
        task: task_pb2.AssignedTask,
        activity: Activity[..., Any],
        runner: ProcessRunner,
    ) -> None:
        """Prepare; the runner finds a child for it."""
        super().__init__(site, task, activity)
        self._runner = runner
        self._child: ChildProcess | None = None
        self.number = next(_numbers) % 2**32
        self.is_killed = False
        self.plain_encoding = ""

    def attach(self, child: ChildProcess) -> None:
        """Assign a child, and pass on a stop that came before."""
        self._child = child
        if self.stop_reason is not None:
            self.interrupt()

    def interrupt(self) -> None:
        """Tell the child to stop. A waiting attempt ends here."""
        child = self._child
        if child is not None and self.stop_reason is not None:
            child.stop(self.number, self.stop_reason)
        elif self._runner.withdraw(self):
            self.end(None)

    def force(self) -> bool:
        """Kill the child."""
        self.is_killed = True
        if self._child is not None:
            self._child.kill(self.number)
        return True

    def heard(self, beat: ChildBeat) -> None:
        """Pass a heartbeat of the child on."""
        details = beat.details
        if details is not None:
            details = self.converter.seal_details(details)
        self.heartbeats.beat(details, beat.percent, beat.message)


class ChildProcess:
    """One child process, seen from its worker. Started in the thread that makes it."""

    def __init__(self) -> None:
        """Start a fresh interpreter that finds the same modules."""
        self._connection, theirs = socket.socketpair()
        pipe, self._pipe = os.pipe()
        path = [str(each) or os.getcwd() for each in sys.path]  # noqa: PTH109 (as the path has it)
        command = (sys.executable, "-P", "-m", "tenure.sdk.worker.execution.child")
        try:
            self._process = subprocess.Popen(
                (*command, str(theirs.fileno()), str(pipe), str(os.getpid())),
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), pipe),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
                # Ctrl-C is for the worker, which lets its activities finish.
                process_group=0,
            )
        except BaseException:
            self._connection.close()
            os.close(self._pipe)
            raise
        finally:
            theirs.close()
            os.close(pipe)
        self._lock = threading.Lock()
        self._is_used = False
        self._is_killed = False
        self._number: int | None = None
        self._frames = Frames(self._connection)
        self._reports: msgspec.msgpack.Decoder[Report] = msgspec.msgpack.Decoder(Report)
        self._poll = select.poll()
        self._poll.register(self._connection, select.POLLIN)
        self.send(Boot(path, os.environ.get("PYTHONPATH")))

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs, and was not killed."""
        return not self._is_killed and self._process.poll() is None

    def begin(self, order: Run) -> bool:
        """Begin a run; return whether the child was used before, and so may have died since."""
        with self._lock:
            self._number = order.number
        was_used, self._is_used = self._is_used, True
        self.send(order)
        return was_used

    def end(self) -> None:
        """End the run. Later stops and kills of it have no effect."""
        with self._lock:
            self._number = None

    def send(self, order: Boot | Run) -> None:
        """Give an order; a child that is gone is noticed when its report is read."""
        with contextlib.suppress(ConnectionError):
            write(self._connection, order)

    def read(self) -> Report | None:
        """Return the next report; None when the child is gone. Raises ``BrokenFrame``."""
        while (report := self._frames.take(self._reports)) is None:
            try:
                if not self._is_readable() or not self._frames.fill():
                    return None
            except ConnectionError:
                return None
        return report

    def _is_readable(self) -> bool:
        while not self._poll.poll(_LOOK_MS):
            if self._process.poll() is not None:
                # Everything that it sent before it died has arrived.
                return bool(self._poll.poll(0))
        return True

    def stop(self, number: int, reason: StopReason) -> None:
        """Tell the child to stop a run; from any thread, and it never waits."""
        with self._lock, contextlib.suppress(OSError):
            os.write(self._pipe, STOP.pack(number, _REASONS.index(reason)))

    def kill(self, number: int | None = None) -> None:
        """Kill the process, or only if it still has a certain run; from any thread."""
        with self._lock:
            if number in (None, self._number):
                self._is_killed = True
                self._kill()

    def wait(self) -> int:
        """End the process; return its exit code, negative for a signal."""
        with contextlib.suppress(OSError):
            # An idle child ends when this is closed.
            self._connection.shutdown(socket.SHUT_RDWR)
        try:
            return self._process.wait(_EXIT_S)
        except subprocess.TimeoutExpired:
            self._kill()
            return self._process.wait()

    def _kill(self) -> None:
        """Kill the process with all that it has started, unless those left its group."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def bury(self) -> None:
        """End the process and all that belongs to it."""
        self.wait()
        self._connection.close()
        # A concurrent stop finds the pipe closed, and never writes to another file.
        with self._lock:
            pipe, self._pipe = self._pipe, -1
            os.close(pipe)


class _NotTaken(Exception):
    """A child had died while it was idle; the attempt has not begun."""


class ProcessRunner:
    """Runs attempts in at most ``limit`` children; more wait in line."""

    def __init__(self, limit: int) -> None:
        """Start nothing yet: a worker without such activities has no children."""
        self._pool: Pool[ProcessExecution] = Pool("tenure-process", limit, self._run)
        self._lock = threading.Lock()
        self._idle: list[ChildProcess] = []
        self._busy: set[ChildProcess] = set()
        self._is_closed = False

    def execution(
        self, site: Site, task: task_pb2.AssignedTask, activity: Activity[..., Any]
    ) -> ProcessExecution:
        """Return an attempt to be submitted."""
        return ProcessExecution(site, task, activity, self)

    def submit(self, execution: ProcessExecution) -> None:
        """Run an attempt as soon as a child is free."""
        self._pool.submit(execution)

    def withdraw(self, execution: ProcessExecution) -> bool:
        """Take an attempt out of the line; False if it has left it."""
        return self._pool.withdraw(execution)

    def close(self) -> None:
        """End the children; what still runs there is killed."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            busy = list(self._busy)
        for child in busy:
            child.kill()
        for child in idle:
            child.bury()
        self._pool.close()

    def _run(self, execution: ProcessExecution) -> None:
        execution.end(None if execution.stop_reason is not None else self._ending(execution))

    def _ending(self, execution: ProcessExecution) -> Ending:
        name = execution.activity.name
        try:
            order = _order(execution)
        except BadInputError as error:
            return attempt.ended_by(execution.task, error, execution.converter)
        while True:
            try:
                child = self._take_child()
            except OSError as error:
                message = f"A process for activity {name} cannot be started: {error}"
                return _lost(execution, message, "ProcessNotStarted")
            try:
                return _converse(child, execution, order)
            except _NotTaken:
                continue
            except BrokenFrame as error:
                child.kill()
                message = f"The process of activity {name} sent what is no report: {error}"
                return _lost(execution, message, "ProcessBroken")
            except Exception as error:
                child.kill()
                return attempt.ended_by(execution.task, error, execution.converter)
            finally:
                self._give_back(child)

    def _take_child(self) -> ChildProcess:
        while True:
            with self._lock:
                child = self._idle.pop() if self._idle else None
            if child is None:
                child = ChildProcess()
            elif not child.is_alive:
                child.bury()
                continue
            with self._lock:
                self._busy.add(child)
            return child

    def _give_back(self, child: ChildProcess) -> None:
        child.end()
        with self._lock:
            self._busy.discard(child)
            is_kept = child.is_alive and not self._is_closed
            if is_kept:
                self._idle.append(child)
        if not is_kept:
            child.bury()


def _order(execution: ProcessExecution) -> Run:
    """Return the order for an attempt, with decoded payloads: a child has no codec."""
    task, converter = execution.task, execution.converter
    plain = task_pb2.AssignedTask()
    plain.CopyFrom(task)
    try:
        payload = converter.open(Payload(task.encoding, task.input))
        plain.input = payload.data
        plain.encoding = execution.plain_encoding = payload.encoding
        if execution.details is not None:
            plain.heartbeat_details = converter.open_details(execution.details).data
    except PayloadError as error:
        name = execution.activity.name
        raise BadInputError(f"The input of activity {name} is wrong. {error}") from error
    return Run(
        number=execution.number,
        module=execution.activity.__module__,
        name=execution.activity.name,
        task=plain.SerializeToString(),
        namespace=execution.site.namespace,
        worker_id=execution.site.worker_id,
    )


def _converse(child: ChildProcess, execution: ProcessExecution, order: Run) -> Ending:
    """Give the order, pass heartbeats on, and return how it ended."""
    may_be_dead = child.begin(order)
    execution.attach(child)
    while (report := child.read()) is not None:
        may_be_dead = False
        if isinstance(report, Done):
            return None if report.finish is None else _sealed(execution, report.finish)
        if isinstance(report, ChildBeat):
            execution.heard(report)
    if may_be_dead and not execution.is_killed:
        raise _NotTaken
    return _death(execution, child)


def _sealed(execution: ProcessExecution, finish: bytes) -> task_pb2.TaskFinish:
    """Return the ending that a child reports, with encoded payloads."""
    ending = task_pb2.TaskFinish.FromString(finish)
    task, converter = execution.task, execution.converter
    if ending.kind == attempt.SUCCEEDED:
        plain = Payload(ending.output_encoding or execution.plain_encoding, ending.output)
        return attempt.returned(task, lambda: converter.seal(plain), converter)
    if ending.error.details:
        ending.error.details = converter.seal_details(ending.error.details)
    return ending


def _death(execution: ProcessExecution, child: ChildProcess) -> Ending:
    """Return the ending of an attempt whose child has died."""
    code = child.wait()
    if execution.is_killed or (execution.stop_reason is not None and code == -signal.SIGTERM):
        return None
    name = execution.activity.name
    if code >= 0:
        message = f"The process of activity {name} ended with exit code {code} before it was done."
        return _lost(execution, message, "ProcessExited")
    try:
        by = signal.Signals(-code).name
    except ValueError:
        by = f"signal {-code}"
    hint = " It may have used too much memory." if by == "SIGKILL" else ""
    message = f"The process of activity {name} was killed by {by}.{hint}"
    return _lost(execution, message, "ProcessKilled")


def _lost(execution: Execution, message: str, type: str) -> task_pb2.TaskFinish:
    return attempt.failed(execution.task, make_error(message, type, ErrorCategory.INFRASTRUCTURE))
