"""Activities for child processes; a fresh process imports this module."""

from __future__ import annotations

import contextvars
import ctypes
import faulthandler
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tenure import Stopped, activity
from tests.bounds import WAIT_S

TINT: contextvars.ContextVar[str] = contextvars.ContextVar("tint", default="none")


@activity(start_to_close="30s", executor="process")
def pid_of(delay_s: float = 0) -> int:
    time.sleep(delay_s)
    return os.getpid()


@activity(start_to_close="30s", executor="process")
def modules() -> list[str]:
    return sorted(sys.modules)


@activity(start_to_close="30s", executor="process")
def size(data: bytes) -> int:
    return len(data)


@activity(start_to_close="30s", executor="process", name="double-it")
def double(number: int) -> int:
    return 2 * number


@activity(start_to_close="30s", executor="process")
def die(how: str) -> None:
    activity.heartbeat(how)
    match how:
        case "SIGKILL":
            os.kill(os.getpid(), signal.SIGKILL)
        case "SIGSEGV":
            # It says where it was; the output of the tests is no place for that.
            sys.stderr = None
            faulthandler.disable()
            ctypes.string_at(0)
        case "_exit":
            os._exit(7)
        case "exit":
            sys.exit(7)
        case "with a grandchild":
            # It keeps every file of this process open.
            if os.fork() == 0:
                time.sleep(3)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)
        case "error":
            raise ValueError("in a child")
        case _:
            pass


@activity(start_to_close="30s", executor="process", cancel_grace="60s")
def wait(mark: str, kind: str = "give way") -> str:
    """Leave marks in a file, and wait where no bytecode runs."""
    path = Path(mark)
    ends_at_s = time.monotonic() + WAIT_S
    try:
        # Whoever sees the file may stop it while it is being written.
        path.write_text(str(os.getpid()))
        time.sleep(WAIT_S)
    except Stopped:
        path.write_text(str(activity.stop_reason()))
        with activity.shield():
            activity.heartbeat("last")
        match kind:
            case "return":
                return "done all the same"
            case "stay":
                while time.monotonic() < ends_at_s:
                    time.sleep(0.1)
            case _:
                pass
        raise
    return ""


@activity(start_to_close="30s", executor="process")
def shielded(mark: str) -> str:
    with activity.shield():
        Path(mark).write_text("entered")
        ends_at_s = time.monotonic() + WAIT_S
        while not activity.is_cancelled():
            time.sleep(0.01)
            assert time.monotonic() < ends_at_s
        Path(mark).write_text("saved")
    Path(mark).write_text("never")
    return ""


@activity(start_to_close="30s", executor="process")
def resume() -> list[int]:
    done = activity.heartbeat_details(list[int]) if activity.has_heartbeat_details() else []
    done = [*done, activity.info().attempt]
    activity.progress(50, "half")
    activity.heartbeat(done)
    return done


@activity(start_to_close="30s", executor="process")
def many_beats(count: int) -> None:
    for number in range(count):
        activity.heartbeat(number)
    raise ValueError("after the last one")


@activity(start_to_close="30s", executor="process", completes_later=True)
def later() -> bool:
    assert activity.info().token == "t0ken"
    activity.complete_later()


@activity(start_to_close="30s", executor="process")
def look() -> list[str]:
    info = activity.info()
    keys = [activity.idempotency_key(), activity.attempt_key()]
    return [info.namespace, info.worker_id, info.queue, *keys]


@activity(start_to_close="30s", executor="process")
def tinted(name: str) -> str:
    before = TINT.get()
    TINT.set(name)
    return before


@activity(start_to_close="30s", executor="process")
def signal_myself() -> str:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.01)
    return "still here"


@activity(start_to_close="30s", executor="process")
def environment() -> list[str]:
    # A program that the activity starts has none of the worker's files.
    files = subprocess.run(
        [sys.executable, "-c", "import os; print(sorted(map(int, os.listdir('/dev/fd'))))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [files.strip(), os.environ.get("PYTHONPATH", "unset"), str(sys.stdin.read())]


@activity(start_to_close="30s", executor="process")
def path() -> list[str]:
    return sys.path


ALL = (
    pid_of,
    modules,
    size,
    double,
    die,
    wait,
    shielded,
    resume,
    many_beats,
    later,
    look,
    tinted,
    signal_myself,
    environment,
    path,
)
