"""What a fuzzer found: how many cases, what was answered, and what should not have been."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec

COMPLAINTS_MAX: Final = 20
_TEXT_MAX: Final = 2_000
# What a server writes when something went wrong that it has no answer for.
_FAULTS: Final = ("Traceback", "rpc.failed", "http.failed", "never retrieved", "never awaited")
_KIB_PER_MIB: Final = 1_024


class Found(msgspec.Struct):
    """The sum of one run."""

    seed: int
    count: int = 0
    answers: dict[str, int] = {}
    complaints: list[str] = []

    def note(self, answer: str) -> None:
        """Count a case and what came of it."""
        self.count += 1
        self.answers[answer] = self.answers.get(answer, 0) + 1

    def add(self, other: Found) -> None:
        """Take in what another part of the run found."""
        self.count += other.count
        self.answers = dict(Counter(self.answers) + Counter(other.answers))
        self.complaints += other.complaints

    def complain(self, text: str) -> None:
        """Keep what should not have been, as long as there are few of them."""
        if len(self.complaints) < COMPLAINTS_MAX:
            self.complaints.append(text[:_TEXT_MAX])

    def told(self) -> str:
        """Return the answers, the most frequent first."""
        return ", ".join(
            f"{count:,} {name}" for name, count in Counter(self.answers).most_common(8)
        )


def faults_in(log: Path) -> list[str]:
    """Return the lines of a server's log that speak of mistakes of its own."""
    lines = log.read_text(errors="replace").splitlines()
    found = []
    for at, line in enumerate(lines):
        if any(each in line for each in _FAULTS):
            found.append("\n".join(lines[at : at + 40])[:_TEXT_MAX])
    return found[:COMPLAINTS_MAX]


def memory_mib(pid: int) -> float:
    """Return how much memory a process has in use, as the system counts it."""
    said = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(pid)],  # noqa: S607 (wherever the system keeps it)
        capture_output=True,
        text=True,
        check=True,
    )
    return int(said.stdout) / _KIB_PER_MIB
