"""What holders report of runs: submitted together, and each answered separately."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

from tenure.api.rpc.view import child_view, journal_view, task_view
from tenure.engine.command import Command
from tenure.engine.engine import Engine
from tenure.engine.run import child_command, command
from tenure.errors import TenureError
from tenure.v1 import journal_pb2

Message = TypeVar("Message")
Item = TypeVar("Item")
Answer = TypeVar("Answer")
Ack = TypeVar("Ack")


class RunReporting(ABC, Generic[Message, Item, Answer, Ack]):
    """Submits the reports of one kind of one worker."""

    def __init__(self, engine: Engine, namespace: str, worker_id: str) -> None:
        """Report for a worker whose key was checked."""
        self._engine = engine
        self._namespace = namespace
        self._worker_id = worker_id

    async def record(self, messages: Sequence[Message]) -> list[Ack]:
        """Carry out reports and return the acks, in the order of the reports."""
        accepted, acks = self.submit(messages)
        if accepted:
            await asyncio.wait([answers for _, answers in accepted])
        for items, answers in accepted:
            acks += self.acks_of(items, answers)
        place = {self._place_of(each): number for number, each in enumerate(messages)}
        return sorted(acks, key=lambda ack: place[self._place_of(ack)])

    def submit(
        self, messages: Iterable[Message]
    ) -> tuple[list[tuple[Sequence[Item], asyncio.Future[tuple[Answer, ...]]]], list[Ack]]:
        """Submit what can be read; return the accepted reports and the acks of refused ones."""
        items: list[Item] = []
        refused: list[Ack] = []
        for message in messages:
            try:
                items.append(self._read(message))
            except TenureError as refusal:
                refused.append(self._refused(message, refusal))
        accepted = list(self._accept(items, refused)) if items else []
        return accepted, refused

    def _accept(
        self, items: Sequence[Item], refused: list[Ack]
    ) -> Iterable[tuple[Sequence[Item], asyncio.Future[tuple[Answer, ...]]]]:
        """Submit reports together; if refused, each separately, so that each is answered."""
        try:
            yield items, self._engine.submit(self._command(tuple(items)))
        except TenureError as refusal:
            if len(items) == 1:
                refused.append(self._refused(items[0], refusal))
                return
            for item in items:
                yield from self._accept([item], refused)

    def acks_of(self, items: Sequence[Item], done: asyncio.Future[tuple[Answer, ...]]) -> list[Ack]:
        """Return the acks of submitted reports; a failed command refuses each of them."""
        failure = done.exception()
        if isinstance(failure, TenureError):
            return [self._refused(item, failure) for item in items]
        acks: list[Ack] = []
        for item, answer in zip(items, done.result(), strict=True):
            acks.extend(self._acks(item, answer))
        return acks

    @abstractmethod
    def weight(self, item: Item) -> int:
        """Return what a report counts while it has no answer."""

    @abstractmethod
    def _read(self, message: Message) -> Item: ...

    @abstractmethod
    def _command(self, items: tuple[Item, ...]) -> Command[tuple[Answer, ...]]: ...

    @abstractmethod
    def _acks(self, item: Item, answer: Answer) -> Iterable[Ack]: ...

    @abstractmethod
    def _refused(self, item: Message | Item, refusal: TenureError) -> Ack: ...

    @abstractmethod
    def _place_of(self, each: Message | Ack) -> Hashable: ...


class StepReporting(
    RunReporting[
        journal_pb2.StepReport, command.StepReport, command.StepAnswer, journal_pb2.StepAck
    ]
):
    """Appends to journals."""

    def weight(self, item: command.StepReport) -> int:
        """Count its entries."""
        return len(item.entries)

    def _read(self, message: journal_pb2.StepReport) -> command.StepReport:
        return journal_view.step_report(message)

    def _command(self, items: tuple[command.StepReport, ...]) -> command.RecordSteps:
        return command.RecordSteps(
            namespace=self._namespace, worker_id=self._worker_id, items=items
        )

    def _acks(
        self, item: command.StepReport, answer: command.StepAnswer
    ) -> Iterable[journal_pb2.StepAck]:
        return journal_view.step_acks(item, answer)

    def _refused(
        self, item: journal_pb2.StepReport | command.StepReport, refusal: TenureError
    ) -> journal_pb2.StepAck:
        return journal_view.refused_report(item, refusal)

    def _place_of(self, each: journal_pb2.StepReport | journal_pb2.StepAck) -> Hashable:
        return each.task_id, each.attempt


ChildMessage = TypeVar("ChildMessage", journal_pb2.SpawnReport, journal_pb2.ChildCancel)
ChildItem = TypeVar("ChildItem", child_command.SpawnReport, child_command.ChildCancel)


class _ChildReporting(
    RunReporting[ChildMessage, ChildItem, child_command.ChildAnswer, journal_pb2.ChildAck]
):
    def _acks(
        self, item: ChildItem, answer: child_command.ChildAnswer
    ) -> Iterable[journal_pb2.ChildAck]:
        yield child_view.child_ack(item, answer)

    def _refused(
        self, item: ChildMessage | ChildItem, refusal: TenureError
    ) -> journal_pb2.ChildAck:
        return child_view.refused(item, refusal)

    def _place_of(self, each: ChildMessage | journal_pb2.ChildAck) -> Hashable:
        return each.task_id, each.attempt, each.number


class SpawnReporting(_ChildReporting[journal_pb2.SpawnReport, child_command.SpawnReport]):
    """Makes children of runs."""

    def __init__(self, engine: Engine, namespace: str, worker_id: str) -> None:
        """Read equal options once: the children of one call share theirs."""
        super().__init__(engine, namespace, worker_id)
        self._specs = task_view.SpecReader(child_view.read_options)

    def weight(self, item: child_command.SpawnReport) -> int:
        """Count its children; a group without items is one report too."""
        return len(item.children) or 1

    def _read(self, message: journal_pb2.SpawnReport) -> child_command.SpawnReport:
        return child_view.spawn_report(message, self._specs)

    def _command(self, items: tuple[child_command.SpawnReport, ...]) -> child_command.SpawnTasks:
        return child_command.SpawnTasks(
            namespace=self._namespace, worker_id=self._worker_id, items=items
        )


class CancelReporting(_ChildReporting[journal_pb2.ChildCancel, child_command.ChildCancel]):
    """Ends children of runs."""

    def weight(self, item: child_command.ChildCancel) -> int:
        """Count the report."""
        del item
        return 1

    def _read(self, message: journal_pb2.ChildCancel) -> child_command.ChildCancel:
        return child_view.child_cancel(message)

    def _command(
        self, items: tuple[child_command.ChildCancel, ...]
    ) -> child_command.CancelChildren:
        return child_command.CancelChildren(
            namespace=self._namespace, worker_id=self._worker_id, items=items
        )
