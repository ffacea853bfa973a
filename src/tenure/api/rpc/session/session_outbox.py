"""The messages that wait to be written to one session: limited, and combined into frames."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from tenure.api.rpc import error
from tenure.api.rpc.session.flush_delay import FlushDelay
from tenure.api.rpc.view import journal_view, task_view
from tenure.core.limits import FRAME_BYTES, LULL_ACKS_MAX, PAYLOAD_BYTES_MAX, STREAM_BYTES_MAX
from tenure.core.task.effect import Stop
from tenure.core.task.record import Task
from tenure.engine.command import TaskRef
from tenure.errors import TenureError
from tenure.v1 import journal_pb2, task_pb2
from tenure.v1 import session_service_pb2 as pb

# Answers of a kind in one frame, each of less than a hundred bytes.
_FRAME_RUN_ACKS: Final = 5_000


class SessionOutbox:
    """Collects messages for a worker. Tasks, stops and cancels are limited by its window.

    Payloads are limited by ``room_bytes``, which counts unwritten bytes, answers by the number of
    reports and requests: ``answer_count`` tells the reader when to wait, and ``page_bytes`` whoever
    reads pages of journals.
    """

    def __init__(self, token_of: Callable[[Task], str] | None = None) -> None:
        """Start empty; ``token_of`` makes the task tokens that the worker requested."""
        self._token_of = token_of
        # Each with its bytes, which are counted once.
        self._tasks: deque[tuple[Task, int]] = deque()
        self._unwritten_bytes = 0
        self._frame_bytes = 0
        self._cancel: dict[TaskRef, None] = {}
        self._stop: dict[Stop, None] = {}
        self._acks: list[pb.Ack] = []
        self._step_acks: list[journal_pb2.StepAck] = []
        self._child_acks: list[journal_pb2.ChildAck] = []
        self._pages: deque[tuple[task_pb2.JournalPage, int]] = deque()
        self.page_bytes = 0
        self._lease: pb.LeaseGrant | None = None
        self._drain: pb.Drain | None = None
        self._end: TenureError | None = None
        self._filled = asyncio.Event()
        self._flush_delay = FlushDelay(self._filled)

    @property
    def answer_count(self) -> int:
        """Return how many answers wait."""
        run_acks = len(self._step_acks) + len(self._child_acks)
        return len(self._acks) + run_acks + len(self._pages)

    def put_tasks(self, tasks: Sequence[Task]) -> None:
        """Add tasks."""
        for task in tasks:
            size = journal_view.assigned_bytes(task)
            self._tasks.append((task, size))
            self._unwritten_bytes += size
        self._filled.set()

    @property
    def room_bytes(self) -> int:
        """Return how many bytes of payloads still fit."""
        return STREAM_BYTES_MAX - self._unwritten_bytes

    def written(self) -> bool:
        """Note that the last frame was written; return whether there is room again."""
        had_room = self.room_bytes >= PAYLOAD_BYTES_MAX
        self._unwritten_bytes -= self._frame_bytes
        self._frame_bytes = 0
        return not had_room and self.room_bytes >= PAYLOAD_BYTES_MAX

    def put_cancel(self, refs: Iterable[TaskRef]) -> None:
        """Add cancels."""
        self._cancel.update(dict.fromkeys(refs))
        self._filled.set()

    def put_stop(self, stops: Iterable[Stop]) -> None:
        """Add stops for attempts that have ended."""
        self._stop.update(dict.fromkeys(stops))
        self._filled.set()

    def put_acks(self, acks: Iterable[pb.Ack]) -> None:
        """Answer reports; the worker does not wait, so a few may wait for the next frame."""
        self._acks.extend(acks)
        if len(self._acks) <= LULL_ACKS_MAX:
            self._flush_delay.begin()
        else:
            self._filled.set()

    def put_step_acks(self, acks: Iterable[journal_pb2.StepAck]) -> None:
        """Answer step reports; the code of a run waits for each of them."""
        self._step_acks.extend(acks)
        self._filled.set()

    def put_child_acks(self, acks: Iterable[journal_pb2.ChildAck]) -> None:
        """Answer spawns and cancels; a run gives up its slot only after them."""
        self._child_acks.extend(acks)
        self._filled.set()

    def put_page(self, page: task_pb2.JournalPage, size: int) -> None:
        """Add entries of a journal, with their size."""
        self._pages.append((page, size))
        self.page_bytes += size
        self._filled.set()

    def put_lease(self, grant: pb.LeaseGrant) -> None:
        """Answer a heartbeat."""
        self._lease = grant
        self._filled.set()

    def wake(self) -> None:
        """Wake the writer, also when there is nothing to write."""
        self._filled.set()

    def put_drain(self, drain: pb.Drain) -> None:
        """Ask the worker to drain."""
        self._drain = drain
        self._filled.set()

    def put_end(self, reason: TenureError) -> None:
        """Add that the worker is offline; nothing follows."""
        self._end = reason
        self._filled.set()

    def take_tasks(self) -> list[Task]:
        """Take out the tasks that were never written."""
        tasks = [task for task, _ in self._tasks]
        self._tasks.clear()
        return tasks

    async def wait(self) -> None:
        """Wait until there is something to write."""
        await self._filled.wait()

    def take_frame(self) -> tuple[pb.ServerFrame, bool]:
        """Return everything that fits one frame, and whether it is the last of the session."""
        self._flush_delay.end()
        frame = pb.ServerFrame(
            acks=self._acks,
            step_acks=self._step_acks[:_FRAME_RUN_ACKS],
            child_acks=self._child_acks[:_FRAME_RUN_ACKS],
            lease=self._lease,
            drain=self._drain,
        )
        del self._step_acks[:_FRAME_RUN_ACKS], self._child_acks[:_FRAME_RUN_ACKS]
        self._acks, self._lease, self._drain = [], None, None
        if self._end is not None:
            frame.end.error.CopyFrom(error.detail(self._end))
            return frame, True
        for ref in self._cancel:
            frame.cancel.append(pb.CancelRequest(task_id=ref.task_id, attempt=ref.attempt))
        frame.stop.extend(task_view.stops(self._stop))
        self._cancel, self._stop = {}, {}
        pages = list(self._take_pages())
        frame.pages.extend([page for page, _ in pages])
        frame.tasks.extend(self._take_tasks(FRAME_BYTES - sum([size for _, size in pages])))
        if not (self._tasks or self._pages or self._step_acks or self._child_acks):
            self._filled.clear()
        return frame, False

    def _take_pages(self) -> Iterator[tuple[task_pb2.JournalPage, int]]:
        left = FRAME_BYTES
        while self._pages and left > 0:
            page, size = self._pages.popleft()
            self.page_bytes -= size
            left -= size
            yield page, size

    def _take_tasks(self, room_bytes: int) -> Iterator[task_pb2.AssignedTask]:
        size = 0
        while self._tasks and size < room_bytes:
            task, task_bytes = self._tasks.popleft()
            size += task_bytes
            token = self._token_of(task) if self._token_of else ""
            view = task_view if task.link is None else journal_view
            yield view.assigned(task, token)
        self._frame_bytes += size
