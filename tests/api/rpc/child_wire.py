"""Children over the wire: what the holder of a run reports of them, and what it gets."""

from __future__ import annotations

from typing import Any

from tenure.engine.engine import Engine
from tenure.v1 import journal_pb2, task_pb2
from tests.api.rpc.run_wire import Given, heard
from tests.api.rpc.wire import Stream
from tests.engine.world import QUEUE

START_TO_CLOSE_MS = 60_000


def new_child(engine: Engine, key: str = "resize", **fields: Any) -> journal_pb2.NewChild:
    """Make an activity that a run calls; parts of its task are given as ``task``."""
    given = {
        "task_id": engine.clock.new_id(),
        "type": "resize",
        "task_queue": QUEUE,
        "options": task_pb2.TaskOptions(start_to_close_ms=START_TO_CLOSE_MS),
        **fields.pop("task", {}),
    }
    return journal_pb2.NewChild(task=task_pb2.NewTask(**given), key=key, **fields)


def new_run(engine: Engine, key: str = "child:ship", **fields: Any) -> journal_pb2.NewChild:
    """Make a run that a run calls."""
    options = task_pb2.TaskOptions(kind=task_pb2.TASK_KIND_WORKFLOW)
    task = {"type": "ship", "options": options, **fields.pop("task", {})}
    return new_child(engine, key, task=task, **fields)


def spawn(
    task: Given, *children: journal_pb2.NewChild, number: int = 1, **fields: Any
) -> journal_pb2.SpawnReport:
    given = {"task_id": task.task_id, "attempt": task.attempt, "children": children, **fields}
    return journal_pb2.SpawnReport(number=number, **given)


def items(
    engine: Engine, task: Given, count: int, *, first: int = 0, **fields: Any
) -> journal_pb2.SpawnReport:
    """Make items of a group, all of it unless a total is given."""
    made = [new_child(engine, "", item=item) for item in range(first, first + count)]
    given = {"group_key": "map:resize", "group_index": 2, "group_total": count, **fields}
    return spawn(task, *made, **given)


def cancel(task: Given, *child_ids: str, number: int = 2, **fields: Any) -> journal_pb2.ChildCancel:
    given = {"task_id": task.task_id, "attempt": task.attempt, **fields}
    return journal_pb2.ChildCancel(child_ids=child_ids, number=number, **given)


async def made(stream: Stream, *reports: journal_pb2.SpawnReport) -> list[journal_pb2.ChildAck]:
    """Report children and return the answers."""
    await stream.send(spawns=reports)
    return list((await heard(stream, child_acks=len(reports))).child_acks)


async def cancelled(
    stream: Stream, *requests: journal_pb2.ChildCancel
) -> list[journal_pb2.ChildAck]:
    await stream.send(child_cancels=requests)
    return list((await heard(stream, child_acks=len(requests))).child_acks)
