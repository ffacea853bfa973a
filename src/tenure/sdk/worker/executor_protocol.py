"""Where execution and connection meet: what each may ask of the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tenure.sdk.activity.context import StopReason
from tenure.v1 import task_pb2


class Reporter(Protocol):
    """What execution tells the connection; from any thread, and it never waits."""

    def finish(self, finish: task_pb2.TaskFinish) -> None:
        """Report the end of an attempt: kept, and sent until it was acknowledged."""
        ...

    def beat(self, beat: task_pb2.TaskBeat) -> None:
        """Report progress of an attempt; the last one wins, and it goes before the finish."""
        ...

    def stuck(self, count: int) -> None:
        """Tell how many abandoned threads hold a slot."""
        ...

    def loop_lag(self, milliseconds: int) -> None:
        """Tell how far the user's event loop is behind."""
        ...


class Executor(Protocol):
    """What the connection asks of execution; on the connection's loop only.

    ``worker_id`` is what activities see of the incarnation that they run for. ``is_fenced`` tells
    whether its lease may be over; exclusive work asks it from its own thread.
    """

    worker_id: str
    is_fenced: Callable[[], bool]

    def start(self, task: task_pb2.AssignedTask) -> None:
        """Run an attempt; its end is reported whatever happens."""
        ...

    def stop(self, task_id: str, attempt: int, reason: StopReason) -> None:
        """Ask an attempt to stop; after its grace it is not asked any more."""
        ...

    @property
    def exclusive_types(self) -> frozenset[str]:
        """Which types must not run beside another attempt of the same task."""
        ...

    @property
    def exclusive_count(self) -> int:
        """How many exclusive attempts still run, abandoned ones too."""
        ...

    def stop_exclusive(self) -> None:
        """Stop what must not run when the lease may be over."""
        ...

    def time_out(self, task_id: str, attempt: int) -> None:
        """Stop an exclusive attempt whose time is over as far as this worker can know."""
        ...

    def hand_back(self) -> None:
        """Stop everything because the worker ends; what has not ended is released."""
        ...

    @property
    def active_count(self) -> int:
        """How many slots are taken, by abandoned threads too."""
        ...

    def runs_task(self, task_id: str) -> bool:
        """Tell whether code of an attempt of this task still runs, abandoned or not."""
        ...

    async def close(self) -> None:
        """End threads and processes."""
        ...
