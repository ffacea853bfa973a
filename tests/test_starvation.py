from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest

from tests.polling import eventually_sync
from tests.starvation import ProcessWaits, Stall, Watch, run_watched

CALM, BUSY = 0.1, 2.0
HELD, BROKEN = "held", "broken"
ALLOWED_S = 0.5


class SimulatedWatch:
    """A canary that has seen what the test says."""

    def __init__(self, seconds: float) -> None:
        self.longest = Stall(seconds, "12:00:00", "the canary")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def watches(*seconds: float) -> Callable[[], Watch]:
    """Return what makes one canary per try."""
    made: Iterator[float] = iter(seconds)
    return lambda: SimulatedWatch(next(made))


class Tries:
    """Something that breaks or holds, try by try, and what was said about it."""

    def __init__(self, *outcomes: str) -> None:
        self._outcomes = outcomes
        self.count = 0
        self.said: list[str] = []

    def run(self, *stalls: float) -> str:
        return run_watched(
            self._run,
            allows_s=ALLOWED_S,
            is_broken=lambda outcome: outcome == BROKEN,
            say=lambda _, text: self.said.append(text),
            watch=watches(*stalls),
        )

    def _run(self) -> str:
        self.count += 1
        return self._outcomes[self.count - 1]


@pytest.mark.parametrize("stall", [CALM, BUSY])
def test_what_holds_is_run_once(stall: float) -> None:
    tries = Tries(HELD)
    assert tries.run(stall) == HELD
    assert (tries.count, tries.said) == (1, [])


def test_what_breaks_on_a_calm_machine_fails_at_once() -> None:
    tries = Tries(BROKEN)
    assert tries.run(ALLOWED_S) == BROKEN
    assert (tries.count, tries.said) == (1, [])


def test_what_breaks_while_the_machine_stalls_is_run_again_and_that_is_said() -> None:
    tries = Tries(BROKEN, HELD)
    assert tries.run(BUSY, CALM) == HELD
    assert tries.count == 2
    (said,) = tries.said
    assert said == (
        "try 1 of 3 broke while the machine was busy: the canary stood still for 2.00 s until "
        "12:00:00, 0.5 s are allowed; it is run again"
    )


def test_what_breaks_again_on_a_calm_machine_fails_then() -> None:
    tries = Tries(BROKEN, BROKEN)
    assert tries.run(BUSY, CALM) == BROKEN
    assert (tries.count, len(tries.said)) == (2, 1)


def test_what_breaks_three_times_fails() -> None:
    tries = Tries(BROKEN, BROKEN, BROKEN)
    assert tries.run(BUSY, BUSY) == BROKEN
    assert tries.count == 3
    assert [each[:10] for each in tries.said] == ["try 1 of 3", "try 2 of 3"]


def test_the_third_try_may_hold() -> None:
    tries = Tries(BROKEN, BROKEN, HELD)
    assert tries.run(BUSY, BUSY) == HELD


# -- The canary

PROGRAM = """
import sys
from tests.starvation import Canary
with Canary() as canary:
    print("up", flush=True)
    sys.stdin.readline()
print(f"{canary.longest.seconds} {canary.longest.who}", flush=True)
"""


def test_a_canary_that_was_stopped_tells_for_how_long() -> None:
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGSTOP)
        eventually_sync(lambda: state(process.pid) == "T", what="the stop")
        time.sleep(0.5)
        process.send_signal(signal.SIGCONT)
        process.stdin.write("\n")
        process.stdin.flush()
        seconds, who = process.stdout.readline().strip().split(" ", 1)
    # Of a tick it had slept a part already.
    assert float(seconds) > 0.45
    assert who == "the canary"


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


class SimulatedProc:
    """A folder as ``/proc`` of Linux."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "version").write_text("no process")

    def put(self, pid: int, parent: int, waited_s: float) -> None:
        place = self.folder / str(pid)
        place.mkdir(exist_ok=True)
        (place / "stat").write_text(f"{pid} (a (strange) name) S {parent} 1 1")
        # The first thread never waits: any thread may hold the heartbeat.
        for thread, seconds in ((pid, 0.0), (1_000 + pid, waited_s)):
            (place / "task" / str(thread)).mkdir(parents=True, exist_ok=True)
            (place / "task" / str(thread) / "schedstat").write_text(f"5 {int(seconds * 1e9)} 7")
        (place / "cmdline").write_bytes(b"/usr/bin/python\0-m\0worker\0")


@pytest.fixture
def proc(tmp_path: Path) -> SimulatedProc:
    made = SimulatedProc(tmp_path)
    made.put(10, 1, 0.0)
    return made


def test_a_process_that_waits_for_a_core_stands_still_as_long_as_it_waits(
    proc: SimulatedProc,
) -> None:
    waits = ProcessWaits(10, proc.folder)
    proc.put(11, 10, 3.0)
    # What it waited before is not seen.
    assert waits.look(100.0) == (0.0, "")
    proc.put(11, 10, 3.9)
    seconds, who = waits.look(101.0)
    assert (round(seconds, 3), who) == (0.9, "process 11 (python -m worker)")
    proc.put(11, 10, 4.5)
    assert waits.look(102.0)[0] == pytest.approx(1.5)
    # It runs for more than half of the time: the stall is over, and the next one begins anew.
    proc.put(11, 10, 4.8)
    # Nor is what a process waited that is seen for the first time.
    proc.put(13, 10, 9.0)
    assert waits.look(103.0) == (0.0, "")
    proc.put(11, 10, 5.4)
    assert waits.look(104.0)[0] == pytest.approx(0.6)


def test_processes_are_watched_with_all_below_them_and_no_others(proc: SimulatedProc) -> None:
    waits = ProcessWaits(10, proc.folder)
    for pid, parent in ((11, 10), (12, 11), (20, 1), (21, 20)):
        proc.put(pid, parent, 0.0)
    waits.look(100.0)
    proc.put(21, 20, 0.9)
    proc.put(20, 1, 0.9)
    assert waits.look(101.0) == (0.0, "")
    proc.put(11, 10, 0.6)
    proc.put(12, 11, 0.8)
    seconds, who = waits.look(102.0)
    assert (round(seconds, 3), who) == (0.8, "process 12 (python -m worker)")


def test_where_nobody_counts_no_process_stands_still(tmp_path: Path) -> None:
    waits = ProcessWaits(10, tmp_path / "absent")
    assert waits.look(100.0) == waits.look(200.0) == (0.0, "")


def test_a_process_that_ends_is_forgotten(proc: SimulatedProc) -> None:
    waits = ProcessWaits(10, proc.folder)
    proc.put(11, 10, 0.0)
    waits.look(100.0)
    shutil.rmtree(proc.folder / "11" / "task")
    assert waits.look(101.0) == (0.0, "")
