"""Step reports of workers: submitted together, and each answered separately."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from tenure.api.rpc.view import journal_view
from tenure.engine.engine import Engine
from tenure.engine.run import command as c
from tenure.errors import TenureError
from tenure.v1 import journal_pb2

Answers = asyncio.Future[tuple[c.StepAnswer, ...]]
Acks = list[journal_pb2.StepAck]


class StepReports:
    """Submits the step reports of one worker."""

    def __init__(self, engine: Engine, namespace: str, worker_id: str) -> None:
        """Report for a worker whose key was checked."""
        self._engine = engine
        self._namespace = namespace
        self._worker_id = worker_id

    async def record(self, messages: Sequence[journal_pb2.StepReport]) -> Acks:
        """Record steps and return the acks, in the order of the reports."""
        accepted, acks = self.submit(messages)
        if accepted:
            await asyncio.wait([answers for _, answers in accepted])
        for items, answers in accepted:
            acks += acks_of(items, answers)
        place = {(each.task_id, each.attempt): number for number, each in enumerate(messages)}
        return sorted(acks, key=lambda ack: place[ack.task_id, ack.attempt])

    def submit(
        self, messages: Iterable[journal_pb2.StepReport]
    ) -> tuple[list[tuple[Sequence[c.StepReport], Answers]], Acks]:
        """Submit what can be read; return the accepted reports and the acks of refused ones."""
        items: list[c.StepReport] = []
        refused: Acks = []
        for message in messages:
            try:
                items.append(journal_view.step_report(message))
            except TenureError as refusal:
                refused.append(journal_view.refused_report(message, refusal))
        accepted = list(self._accept(items, refused)) if items else []
        return accepted, refused

    def _accept(
        self, items: Sequence[c.StepReport], refused: Acks
    ) -> Iterable[tuple[Sequence[c.StepReport], Answers]]:
        """Submit reports together; if refused, each separately, so that each is answered."""
        try:
            yield items, self._engine.submit(self._command(items))
        except TenureError as refusal:
            if len(items) == 1:
                refused.append(journal_view.refused_report(items[0], refusal))
                return
            for item in items:
                yield from self._accept([item], refused)

    def _command(self, items: Sequence[c.StepReport]) -> c.RecordSteps:
        return c.RecordSteps(
            namespace=self._namespace, worker_id=self._worker_id, items=tuple(items)
        )


def acks_of(items: Sequence[c.StepReport], done: Answers) -> Acks:
    """Return the acks of submitted reports; a failed command refuses each of them."""
    failure = done.exception()
    if isinstance(failure, TenureError):
        return [journal_view.refused_report(item, failure) for item in items]
    acks: Acks = []
    for item, answer in zip(items, done.result(), strict=True):
        acks.extend(journal_view.step_acks(item, answer))
    return acks
