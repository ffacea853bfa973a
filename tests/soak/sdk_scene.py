"""What the scenes with the SDK share: worker processes, and looking at what the server knows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from tests.bounds import START_S
from tests.polling import eventually
from tests.wire.journal import Tail
from tests.wire.process import Process
from tests.wire.stage import Stage

_numbers = itertools.count(1)


class SdkWorker:
    """One worker program of the SDK, its journal and its log."""

    def __init__(self, process: Process, journal: Path, log: Path) -> None:
        self.process = process
        self.journal = journal
        self.tail = Tail(journal)
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    async def registered(self, queues: int = 1) -> None:
        """Wait until it is registered for so many queues."""
        await eventually(
            lambda: self.log.count("Registered as") >= queues,
            "a worker registered",
            within_s=START_S,
        )

    @classmethod
    async def start(
        cls,
        stage: Stage,
        target: str,
        *,
        mode: str = "session",
        slots: int = 10,
        options: Sequence[str] = (),
    ) -> SdkWorker:
        """Start one and wait until it is registered."""
        made = await cls.spawn(stage, target, mode=mode, slots=slots, options=options)
        await made.registered()
        return made

    @classmethod
    async def spawn(
        cls,
        stage: Stage,
        target: str,
        *,
        mode: str = "session",
        slots: int = 10,
        options: Sequence[str] = (),
    ) -> SdkWorker:
        """Start one and do not wait for it."""
        number = next(_numbers)
        journal = stage.folder / f"sdk-{number}.jsonl"
        log = stage.folder / f"sdk-{number}.log"
        process = await Process.spawn(
            (
                *("-m", "tests.soak.sdk_worker", "--target", target, "--mode", mode),
                *("--slots", str(slots), "--journal", str(journal), *options),
            ),
            log,
        )
        made = cls(process, journal, log)
        # The stage ends what it knows of, whatever happens in the scene.
        stage.adopt(process)
        return made
