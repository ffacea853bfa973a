"""Tell a broken promise from a machine that was too busy to keep it.

A test in real time cannot hold while its processes get no core: a worker whose heartbeat does not
run loses its lease, and rightly so. The canary watches for that beside the test, in two ways. A
thread of its own sleeps for a moment, again and again, and notes how much too late it woke. And the
processes of the test are asked how long they waited for a core (Linux counts it): one that works
gets less than its share long before a thread that mostly sleeps wakes late.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self, TypeVar

TRIES_MAX: Final = 3
TICK_S: Final = 0.02
# How often the processes are looked at: it reads a file of each thread.
LOOK_S: Final = 0.5
# A process stands still while it waits for more than this share of the time between two looks.
WAITING_SHARE: Final = 0.5
_COMMAND_CHARS_MAX: Final = 40
_PROC: Final = Path("/proc")

Outcome = TypeVar("Outcome")


class Stall(NamedTuple):
    """How long somebody could not run, when it ended and who it was."""

    seconds: float = 0.0
    at: str = ""
    who: str = "nobody"

    def __str__(self) -> str:
        return f"{self.who} stood still for {self.seconds:.2f} s until {self.at}"


class Watch(Protocol):
    """Looks on while a test runs."""

    @property
    def longest(self) -> Stall: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def run_watched(
    run: Callable[[], Outcome],
    *,
    allows_s: float,
    is_broken: Callable[[Outcome], bool],
    say: Callable[[Outcome, str], None],
    watch: Callable[[], Watch] | None = None,
) -> Outcome:
    """Run something; run it again if it broke while somebody stood still for too long.

    What broke on a calm machine is returned at once, and what broke for the last time as well.
    """
    for number in range(1, TRIES_MAX):
        with (watch or Canary)() as canary:
            outcome = run()
        stall = canary.longest
        if not is_broken(outcome) or stall.seconds <= allows_s:
            return outcome
        say(
            outcome,
            f"try {number} of {TRIES_MAX} broke while the machine was busy: {stall}, "
            f"{allows_s:g} s are allowed; it is run again",
        )
    return run()


class Canary:
    """Watches this process and those that it started, from its own thread."""

    def __init__(self) -> None:
        self.longest = Stall()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="canary", daemon=True)
        self._processes = ProcessWaits(os.getpid())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        look_at_s = time.monotonic()
        is_over = False
        while not is_over:
            began_s = time.monotonic()
            is_over = self._over.wait(TICK_S)
            woke_s = time.monotonic()
            self._note(woke_s - began_s - TICK_S, "the canary")
            if woke_s >= look_at_s or is_over:
                look_at_s = woke_s + LOOK_S
                self._note(*self._processes.look(woke_s))

    def _note(self, seconds: float, who: str) -> None:
        if seconds > self.longest.seconds:
            self.longest = Stall(seconds, time.strftime("%H:%M:%S"), who)


class ProcessWaits:
    """How long threads of a process and those below it have waited for a core without a break."""

    def __init__(self, top: int, proc: Path = _PROC) -> None:
        self._top = top
        self._proc = proc
        self._parents: dict[int, int] = {}
        self._looked_s = 0.0
        self._waited_s: Mapping[Path, float] = {}
        self._stalls_s: dict[Path, float] = {}

    def look(self, now_s: float) -> tuple[float, str]:
        """Return the longest wait that goes on, and whose it is; (0, "") where nobody counts."""
        passed_s = now_s - self._looked_s
        before, self._waited_s, self._looked_s = self._waited_s, self._read(), now_s
        stalls = self._stalls_s
        self._stalls_s = {}
        for thread, waited_s in self._waited_s.items():
            more_s = waited_s - before.get(thread, waited_s)
            if more_s > WAITING_SHARE * passed_s:
                self._stalls_s[thread] = stalls.get(thread, 0.0) + more_s
        if not self._stalls_s:
            return 0.0, ""
        thread = max(self._stalls_s, key=self._stalls_s.__getitem__)
        pid = thread.parts[-3]
        return self._stalls_s[thread], f"process {pid} ({self._command(pid)})"

    def _read(self) -> dict[Path, float]:
        """Return how long each thread has waited since it began."""
        found: dict[Path, float] = {}
        for pid in self._family():
            # A process or thread may end meanwhile.
            with contextlib.suppress(OSError):
                for thread in (self._proc / str(pid) / "task").iterdir():
                    # Nanoseconds on a core, nanoseconds of waiting for one, turns.
                    fields = (thread / "schedstat").read_text().split()
                    found[thread] = int(fields[1]) / 1e9
        return found

    def _family(self) -> list[int]:
        """Return the process and all below it; who their parents are is read once."""
        try:
            pids = [int(each.name) for each in self._proc.iterdir() if each.name.isdigit()]
        except OSError:
            return []
        self._parents = {pid: self._parents.get(pid) or self._parent(pid) for pid in pids}
        return [pid for pid in pids if self._is_below(pid)]

    def _parent(self, pid: int) -> int:
        try:
            # The name of the program stands in parentheses before it, and may contain anything.
            text = (self._proc / str(pid) / "stat").read_text()
        except OSError:
            return 0
        return int(text.rpartition(")")[2].split()[1])

    def _is_below(self, pid: int) -> bool:
        seen: set[int] = set()
        while pid not in seen and pid != self._top:
            seen.add(pid)
            pid = self._parents.get(pid, 0)
        return pid == self._top

    def _command(self, pid: str) -> str:
        try:
            data = (self._proc / pid / "cmdline").read_bytes()
        except OSError:
            return "gone"
        program, *arguments = data.decode(errors="replace").split("\0")
        return " ".join((Path(program).name, *arguments)).strip()[:_COMMAND_CHARS_MAX]
