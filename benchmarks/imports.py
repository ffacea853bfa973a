"""What a user waits for before anything happens: CPU seconds of an import and of the help."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.context import Context

COUNT = 7
COMMANDS = {
    "tenure_cpu_s": [sys.executable, "-c", "import tenure"],
    "help_cpu_s": [str(Path(sys.executable).with_name("tenure")), "--help"],
}


async def run(context: Context) -> dict[str, float]:
    """Measure each command several times; the first time, which may compile, is left out."""
    numbers = {}
    for name, command in COMMANDS.items():
        _cpu_seconds(command)
        numbers[name] = statistics.median(_cpu_seconds(command) for _ in range(COUNT))
        context.report(name, numbers[name])
    return numbers


def _cpu_seconds(command: list[str]) -> float:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime
