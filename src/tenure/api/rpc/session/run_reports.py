"""What a session says and asks about the runs that its worker holds."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

from msgspec.structs import replace

from tenure.api.rpc.run_report import CancelReporting, RunReporting, SpawnReporting, StepReporting
from tenure.api.rpc.session.session_outbox import SessionOutbox
from tenure.api.rpc.view import journal_view
from tenure.core.journal import numbering
from tenure.core.journal.entry import JournalPage
from tenure.core.limits import FRAME_BYTES, JOURNAL_REQUESTS_MAX
from tenure.engine.command import TaskRef
from tenure.engine.engine import Engine
from tenure.engine.read.held_journal import PageAnswer, PageRef, read_held_pages
from tenure.engine.read.journal_page import NO_ROOM
from tenure.errors import TenureError, Unavailable
from tenure.v1 import journal_pb2
from tenure.v1 import session_service_pb2 as pb

Message = TypeVar("Message")
Item = TypeVar("Item")
Answer = TypeVar("Answer")
Ack = TypeVar("Ack")


class RunReports:
    """Records steps, makes and ends children, and reads pages; answers go to the outbox.

    ``open_count`` is what has no answer yet. ``has_room`` is set whenever that changes, and when a
    frame was written.
    """

    def __init__(
        self,
        engine: Engine,
        namespace: str,
        worker_id: str,
        outbox: SessionOutbox,
        has_room: asyncio.Event,
    ) -> None:
        """Report for a worker whose key was checked when its session was opened."""
        self._engine = engine
        self._namespace = namespace
        self._worker_id = worker_id
        self._steps = StepReporting(engine, namespace, worker_id)
        self._spawns = SpawnReporting(engine, namespace, worker_id)
        self._cancels = CancelReporting(engine, namespace, worker_id)
        self._outbox = outbox
        self._has_room = has_room
        self._wanted: deque[PageRef] = deque()
        self._is_reading = False
        self._report_count = 0

    @property
    def open_count(self) -> int:
        """Return how many entries, children and requests have no answer yet."""
        return self._report_count + len(self._wanted)

    def record(self, frame: pb.ClientFrame) -> None:
        """Submit steps, then new children, then cancels, without waiting for their commit."""
        if frame.steps:
            self._submit(self._steps, frame.steps, self._outbox.put_step_acks)
        if frame.spawns:
            self._submit(self._spawns, frame.spawns, self._outbox.put_child_acks)
        if frame.child_cancels:
            self._submit(self._cancels, frame.child_cancels, self._outbox.put_child_acks)

    def _submit(
        self,
        reporting: RunReporting[Message, Item, Answer, Ack],
        messages: Iterable[Message],
        put: Callable[[Sequence[Ack]], None],
    ) -> None:
        accepted, refused = reporting.submit(messages)
        for items, answers in accepted:
            weight = sum([reporting.weight(each) for each in items])
            self._report_count += weight
            answers.add_done_callback(partial(self._done, reporting, items, weight, put))
        if refused:
            put(refused)

    def _done(
        self,
        reporting: RunReporting[Message, Item, Answer, Ack],
        items: Sequence[Item],
        weight: int,
        put: Callable[[Sequence[Ack]], None],
        done: asyncio.Future[tuple[Answer, ...]],
    ) -> None:
        self._report_count -= weight
        self._has_room.set()
        if not done.cancelled():
            put(reporting.acks_of(items, done))

    def push(self, ref: TaskRef, page: JournalPage) -> None:
        """Send entries unasked; a worker that does not read gets only where they end."""
        size = numbering.page_bytes(page)
        if size and self._outbox.page_bytes >= FRAME_BYTES:
            page, size = replace(page, entries=()), 0
        self._outbox.put_page(journal_view.page(ref.task_id, ref.attempt, page), size)

    def ask(self, messages: Iterable[journal_pb2.JournalRequest], group: asyncio.TaskGroup) -> None:
        """Read pages of journals in the background, in the order of the requests."""
        self._wanted.extend([journal_view.page_ref(each) for each in messages])
        if not self._is_reading:
            self._is_reading = True
            group.create_task(self._read_pages())

    async def _read_pages(self) -> None:
        """Read until nothing is wanted; what is read waits until what was read is written."""
        while self._wanted:
            while self._outbox.page_bytes >= FRAME_BYTES:
                self._has_room.clear()
                await self._has_room.wait()
            wanted = list(islice(self._wanted, JOURNAL_REQUESTS_MAX))
            answers = await self._read(wanted)
            # Those without room are read again; if nobody had entries, there are none.
            may_wait = any(isinstance(each, JournalPage) and each.entries for each in answers)
            for each, answer in zip(wanted, answers, strict=True):
                self._wanted.popleft()
                is_cut = may_wait and not each.open_after and _is_cut(answer)
                if is_cut or _is_without_room(answer):
                    self._wanted.append(each)
                else:
                    self._answer(each, answer)
            self._has_room.set()
        self._is_reading = False

    async def _read(self, wanted: Sequence[PageRef]) -> Sequence[PageAnswer]:
        try:
            return await read_held_pages(
                self._engine.store,
                namespace=self._namespace,
                worker_id=self._worker_id,
                wanted=wanted,
            )
        except TenureError as refusal:
            return [refusal] * len(wanted)

    def _answer(self, wanted: PageRef, answer: PageAnswer) -> None:
        size = numbering.page_bytes(answer) if isinstance(answer, JournalPage) else 0
        self._outbox.put_page(journal_view.answered_page(wanted, answer), size)


def _is_cut(answer: PageAnswer) -> bool:
    """Tell whether there are entries that had no room."""
    return isinstance(answer, JournalPage) and not answer.entries and answer.end > answer.after


def _is_without_room(answer: PageAnswer) -> bool:
    """Tell whether others of the same answer have taken all room."""
    return isinstance(answer, Unavailable) and answer.fields.get("reason") == NO_ROOM
