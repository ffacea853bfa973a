"""Runs over the wire: a worker's end that records steps and asks for pages."""

from __future__ import annotations

from typing import Any

from tenure.core.task.record import NewTask, Spec, TaskKind
from tenure.core.task.retry import RetryPolicy
from tenure.engine.engine import Engine
from tenure.engine.run.command import NewSignal, SignalRun, StartRun
from tenure.v1 import journal_pb2, task_pb2
from tenure.v1 import session_service_pb2 as pb
from tests.api.rpc.wire import Stream, Wire, ref
from tests.engine.world import NAMESPACE, QUEUE

RUN_SPEC = Spec(kind=TaskKind.WORKFLOW, retry=RetryPolicy(maximum_attempts=1), encoding="json")
Given = task_pb2.AssignedTask


async def start(engine: Engine, *signals: str, type: str = "mail", **fields: Any) -> str:
    """Start a run and return its id."""
    new = NewTask(engine.clock.new_id(), type, QUEUE, RUN_SPEC, **fields)
    sent = tuple(NewSignal(name=each, payload=b'"yes"') for each in signals)
    answer = await engine.submit(StartRun(namespace=NAMESPACE, new=new, signals=sent))
    return answer.task_id


async def signal(engine: Engine, run_id: str, name: str = "approve", **fields: Any) -> None:
    sent = NewSignal(name=name, **fields)
    await engine.submit(SignalRun(namespace=NAMESPACE, run_id=run_id, signal=sent))


async def held_run(wire: Wire, engine: Engine, *signals: str) -> tuple[str, Stream, Given]:
    """Start a run that a worker with a session has."""
    worker_id, stream = await wire.session_worker()
    await start(engine, *signals)
    (task,) = await stream.tasks()
    await stream.send(started=[ref(task)])
    await wire.until_state(task.task_id, "RUNNING")
    return worker_id, stream, task


def entry(key: str = "charge", **fields: Any) -> task_pb2.NewEntry:
    return task_pb2.NewEntry(
        **{"kind": task_pb2.ENTRY_KIND_STEP, "key": key, "output": b"12", **fields}
    )


def report(
    task: Given, *entries: task_pb2.NewEntry, first_no: int = 1, **fields: Any
) -> journal_pb2.StepReport:
    return journal_pb2.StepReport(
        **{
            "task_id": task.task_id,
            "attempt": task.attempt,
            "first_no": first_no,
            "entries": entries or [entry()],
            **fields,
        }
    )


def wanted(task: Given, after: int = 0, **fields: Any) -> journal_pb2.JournalRequest:
    return journal_pb2.JournalRequest(
        **{"task_id": task.task_id, "attempt": task.attempt, "after": after, **fields}
    )


def released(task: Given) -> task_pb2.TaskFinish:
    kind = task_pb2.FINISH_KIND_RELEASED
    return task_pb2.TaskFinish(task_id=task.task_id, attempt=task.attempt, kind=kind)


def yielded(task: Given, **fields: Any) -> task_pb2.TaskFinish:
    return task_pb2.TaskFinish(
        task_id=task.task_id, attempt=task.attempt, kind=task_pb2.FINISH_KIND_YIELDED, **fields
    )


async def heard(stream: Stream, **counts: int) -> pb.ServerFrame:
    """Read until so many of each part have come, and return all that came as one frame."""
    all_of_it = pb.ServerFrame()
    while any(len(getattr(all_of_it, part)) < count for part, count in counts.items()):
        all_of_it.MergeFrom(await stream.read())
    return all_of_it


async def acks(stream: Stream, count: int = 1) -> list[journal_pb2.StepAck]:
    """Return the next answers to step reports."""
    return list((await heard(stream, step_acks=count)).step_acks)


async def record(stream: Stream, *reports: journal_pb2.StepReport) -> list[journal_pb2.StepAck]:
    await stream.send(steps=reports)
    return await acks(stream, len(reports))


async def page(stream: Stream, request: journal_pb2.JournalRequest) -> task_pb2.JournalPage:
    await stream.send(journal=[request])
    (answer,) = (await heard(stream, pages=1)).pages
    return answer


async def finished(stream: Stream, item: task_pb2.TaskFinish) -> pb.Ack:
    await stream.send(finished=[item])
    (ack,) = (await heard(stream, acks=1)).acks
    return ack


def keys(page: task_pb2.JournalPage) -> list[tuple[int, str]]:
    return [(each.pos, each.content.key) for each in page.entries]
