"""SIGKILL during load on SQLite: what was acknowledged is there, and the file is whole."""

from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from tests.bounds import WORK_S
from tests.chaos import checker, journal
from tests.chaos.process import EngineProcess
from tests.polling import eventually
from tests.soak.result import Result


class Size(msgspec.Struct, frozen=True):
    """How often the process is killed, and after how many acknowledged operations at least."""

    kills: int
    operations: int
    callers: int


SIZES: Final = {False: Size(20, 3_000, 32), True: Size(2, 300, 8)}


async def run(small: bool) -> list[Result]:
    """Kill a server on one file again and again; each new one goes on with the same file."""
    size = SIZES[small]
    chance = random.Random(3)
    complaints: list[str] = []
    verdicts = set()
    with tempfile.TemporaryDirectory(prefix="tenure-soak-") as name:
        folder = Path(name)
        path = str(folder / "tenure.db")
        journals: list[Path] = []
        for number in range(size.kills):
            journals.append(folder / f"journal-{number}")
            engine = await EngineProcess.start(
                f"sqlite:{path}",
                journals[-1],
                claimers=size.callers,
                producers=size.callers,
                seed=number,
            )
            try:
                await wait_for_lines(engine, size.operations)
                await asyncio.sleep(chance.uniform(0, 0.3))
            finally:
                await engine.kill()
            stored, verdict = checker.read_sqlite(path)
            verdicts.add(verdict)
            complaints += checker.check(journal.read(journals), stored)
        told = journal.read(journals)
    return [
        Result(
            f"SQLite: {size.kills} SIGKILLs under load",
            "every acknowledged enqueue and completion is there",
            f"{len(told.enqueued):,} enqueues, {told.done_count:,} completions, "
            f"{len(complaints)} broken promises",
            held=not complaints,
            details=tuple(complaints),
        ),
        Result(
            "SQLite: the file after each kill",
            "integrity_check ok",
            ", ".join(sorted(verdicts)),
            held=verdicts == {"ok"},
        ),
    ]


async def wait_for_lines(engine: EngineProcess, count: int) -> None:
    """Wait until a process has logged so many operations."""

    def is_logged() -> bool:
        assert engine.is_running
        return journal.count_lines(engine.journal) >= count

    await eventually(is_logged, f"{count} lines", within_s=WORK_S)
