"""What the next call to a served worker carries: a copy of rows, not a queue of commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from tenure.core.assignment import counted_bytes
from tenure.core.limits import FRAME_BYTES, SERVED_TASK_BYTES, STREAM_BYTES_MAX
from tenure.core.seat.kill import Kill, KillReason
from tenure.core.task.effect import Stop
from tenure.core.task.record import Task
from tenure.engine.command import TaskRef
from tenure.engine.seat.call import Ack, Call

Holds = Callable[[TaskRef], bool]
# About what they take on the wire, with an error at the most.
_ACK_BYTES: Final = 300
_ACKS_MAX: Final = 1_000
_KILL_BYTES: Final = 100
_KILLS_MAX: Final = 4_000


class Load(NamedTuple):
    """What one call carries, and whether something found no room."""

    tasks: tuple[Task, ...]
    kills: tuple[Kill, ...]
    acks: tuple[Ack, ...]
    has_more: bool


class ServedContent:
    """Remembers what was derived when the seat was taken, and what this server was told since.

    ``holds`` tells whether the worker still holds an attempt, as far as this server knows: what has
    ended meanwhile is not carried. A failed call changes nothing here.
    """

    def __init__(self, holds: Holds) -> None:
        """Start with nothing to say."""
        self._holds = holds
        self._tasks: dict[TaskRef, Task] = {}
        self._bytes = 0
        self._cancel: dict[TaskRef, None] = {}
        self._stop: dict[TaskRef, Stop] = {}
        self._acks: dict[tuple[TaskRef, bool], Ack] = {}
        # What no answered call has carried yet.
        self._news = False

    @property
    def has_news(self) -> bool:
        """Return whether a call has something to say that none has said yet."""
        return self._news

    @property
    def room_bytes(self) -> int:
        """Return how many bytes of payloads fit besides those that wait to be confirmed."""
        return STREAM_BYTES_MAX - self._bytes

    @property
    def unconfirmed_count(self) -> int:
        """Return how many attempts are in no answer yet."""
        return len(self._tasks)

    @property
    def kill_count(self) -> int:
        """Return how many attempts the worker has to stop."""
        return len(self._cancel) + len(self._stop)

    def give(self, tasks: Iterable[Task]) -> None:
        """Add attempts that were handed to the worker."""
        for task in tasks:
            ref = TaskRef(task.id, task.attempt)
            if ref not in self._tasks:
                self._tasks[ref] = task
                self._bytes += counted_bytes(task)
                self._news = True

    def cancel(self, refs: Iterable[TaskRef]) -> None:
        """Add attempts that are to be cancelled."""
        for ref in refs:
            if ref not in self._cancel:
                self._cancel[ref] = None
                self._news = True

    def stop(self, stops: Iterable[Stop]) -> None:
        """Add attempts that have ended, and forget that they were to be run."""
        for each in stops:
            ref = TaskRef(each.task_id, each.attempt)
            self._drop([ref])
            self._cancel.pop(ref, None)
            if ref not in self._stop:
                self._stop[ref] = each
                self._news = True

    def ack(self, acks: Iterable[Ack]) -> None:
        """Add answers to reports."""
        for each in acks:
            self._acks[each.ref, each.is_finish] = each
            self._news = True

    # -- A call

    def next(self) -> Load:
        """Return what the next call carries: as much as fits a frame, the rest follows at once."""
        self._drop([ref for ref in self._tasks if not self._holds(ref)])
        acks = tuple(islice(self._acks.values(), _ACKS_MAX))
        kills = tuple(islice(self._kills(), _KILLS_MAX))
        room_bytes = FRAME_BYTES - SERVED_TASK_BYTES
        room_bytes -= len(acks) * _ACK_BYTES + len(kills) * _KILL_BYTES
        tasks = tuple(self._fitting(room_bytes))
        has_more = len(tasks) < len(self._tasks) or len(acks) < len(self._acks)
        self._news = False
        return Load(tasks, kills, acks, has_more)

    def _fitting(self, room_bytes: int) -> Iterator[Task]:
        """Return as many attempts as there is room for; a large one is alone."""
        size = 0
        for task in self._tasks.values():
            task_bytes = counted_bytes(task) + SERVED_TASK_BYTES
            if size and size + task_bytes > room_bytes:
                return
            size += task_bytes
            yield task

    def _kills(self) -> Iterator[Kill]:
        for ref in self._cancel:
            yield Kill(ref.task_id, ref.attempt, KillReason.CANCEL)
        for each in self._stop.values():
            yield Kill(each.task_id, each.attempt, KillReason.NOT_HELD, each.cause)

    # -- Its answer

    def answered(self, call: Call) -> None:
        """Forget the acks that an answered call has carried."""
        for each in call.acks:
            if self._acks.get((each.ref, each.is_finish)) is each:
                del self._acks[each.ref, each.is_finish]

    def confirmed(self, refs: Iterable[TaskRef]) -> None:
        """Forget attempts that an answer names, or lacks though its call carried them."""
        self._drop(refs)

    def compared(self, call: Call, stop: Sequence[Stop], cancel: Sequence[TaskRef]) -> None:
        """Take what a full set says to stop; keep what the call could not know yet."""
        carried = {(each.task_id, each.attempt) for each in call.kills}
        said = {TaskRef(each.task_id, each.attempt): each for each in stop}
        self._news |= any((ref.task_id, ref.attempt) not in carried for ref in (*said, *cancel))
        self._stop = said | {
            ref: each
            for ref, each in self._stop.items()
            if (ref.task_id, ref.attempt) not in carried
        }
        self._cancel = dict.fromkeys(cancel) | {
            ref: None
            for ref in self._cancel
            if (ref.task_id, ref.attempt) not in carried and ref not in self._stop
        }

    def _drop(self, refs: Iterable[TaskRef]) -> None:
        for ref in refs:
            task = self._tasks.pop(ref, None)
            if task is not None:
                self._bytes -= counted_bytes(task)
