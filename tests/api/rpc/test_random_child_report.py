"""Reports on children that chance makes: each is answered, and the run can go on after all."""

from __future__ import annotations

import random

import pytest

from tenure.engine.engine import Engine
from tenure.errors import ERRORS
from tenure.v1 import journal_pb2
from tests.api.rpc.child_wire import made, new_child, spawn
from tests.api.rpc.run_wire import heard, held_run
from tests.api.rpc.wire import Wire
from tests.fuzz.message import Maker, Pool

COUNT = 60


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_whatever_a_worker_reports_is_answered(wire: Wire, engine: Engine, seed: int) -> None:
    _, stream, task = await held_run(wire, engine)
    child = new_child(engine)
    await made(stream, spawn(task, child))
    pool = Pool(refs=[(task.task_id, 1), (task.task_id, 1), (child.task.task_id, 1)])
    maker = Maker(random.Random(seed), pool)
    codes: set[str] = set()
    for _ in range(COUNT):
        report = maker.request(journal_pb2.SpawnReport.DESCRIPTOR)
        cancel = maker.request(journal_pb2.ChildCancel.DESCRIPTOR)
        request = maker.request(journal_pb2.JournalRequest.DESCRIPTOR)
        await stream.send(spawns=[report], child_cancels=[cancel], journal=[request])
        told = await heard(stream, child_acks=2)
        codes |= {each.error.code for each in told.child_acks}
        codes |= {each.error.code for each in told.pages}
    assert codes <= {"", *ERRORS}
    assert "invalid_argument" in codes
    assert codes.isdisjoint({"internal", "unavailable"})
    (ack,) = await made(stream, spawn(task, new_child(engine)))
    assert not ack.HasField("error")
