"""One attempt of a step by itself."""

from __future__ import annotations

import asyncio
from typing import Any

from tenure.sdk.activity.context import StopReason
from tenure.sdk.payload import Converter
from tenure.sdk.worker.run.local_step import AsyncStep, LocalStep
from tenure.sdk.workflow.journal import Entry
from tenure.sdk.workflow.scope import CallKey
from tenure.sdk.workflow.step import step_function
from tenure.v1 import task_pb2
from tests.polling import eventually


class Owner:
    """The run of a step, which keeps what it hears."""

    def __init__(self) -> None:
        self.task = task_pb2.AssignedTask(task_id="run-1", attempt=1)
        self.namespace = "default"
        self.worker_id = "worker-1"
        self.converter = Converter()
        self.done: list[Entry] = []
        self.freed = 0

    def step_begun(self, _local: LocalStep) -> None: ...

    def step_done(self, _local: LocalStep, entry: Entry) -> None:
        self.done.append(entry)

    def step_freed(self, _local: LocalStep) -> None:
        self.freed += 1


class Call:
    """What a run knows of the call of a step."""

    def __init__(self, function: Any) -> None:
        self.function = step_function(function)
        self.key = "work"
        self.call_key = CallKey("work", "", 0)
        self.line = "orders.py:1 in body"
        self.args = ()
        self.kwargs: dict[str, Any] = {}


def local_step(owner: Owner, function: Any) -> AsyncStep:
    call: Any = Call(function)
    return AsyncStep(owner, call, 1)


async def test_a_step_that_is_stopped_before_its_first_line_ends_too() -> None:
    calls: list[int] = []

    async def work() -> None:
        calls.append(1)

    owner = Owner()
    local = local_step(owner, work)
    local.begin(1)
    local.stop(StopReason.CANCELLED)
    await eventually(lambda: owner.done)

    (entry,) = owner.done
    assert entry.error is not None
    assert entry.error.type == "Stopped"
    assert not calls


async def test_a_step_that_does_not_stop_is_abandoned_until_it_ends() -> None:
    gate = asyncio.Event()

    async def work() -> None:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue

    owner = Owner()
    local = local_step(owner, work)
    local.begin(1)
    await asyncio.sleep(0)
    # Its timeout of 10 s is over, and then the time for its clean-up.
    local.tick(local.started_at_s + 10)
    assert not owner.done
    local.tick(local.started_at_s + 60)

    (entry,) = owner.done
    assert entry.error is not None
    assert entry.error.type == "TimedOut"
    assert local.is_abandoned
    gate.set()
    await eventually(lambda: owner.freed)
    assert len(owner.done) == 1
