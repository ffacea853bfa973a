"""What a type checker knows of the test kit; `make check` reads it, nothing runs it."""

from __future__ import annotations

from typing import assert_type

from tenure import RunHandle, SyncRunHandle, WorkflowContext, signal, workflow
from tenure.testing import SyncTestEngine, TestEngine, assert_survives

go = signal("go", int)


@workflow
async def ask(ctx: WorkflowContext, name: str) -> int:
    return await ctx.wait_signal(go) + len(name)


async def asynchronous(engine: TestEngine) -> None:
    assert_type(await engine.start(ask, "ann"), RunHandle[int])
    await engine.start(ask, 7)  # type: ignore[arg-type]
    ended = await assert_survives(ask, "ann", engine=engine, act=lambda run: run.signal(go, 7))
    assert_type(ended, int)
    await assert_survives(ask, "ann")  # type: ignore[call-arg]


def synchronous(engine: SyncTestEngine) -> None:
    assert_type(engine.start(ask, "ann"), SyncRunHandle[int])
    assert_type(engine.assert_survives(ask, "ann", act=lambda run: run.signal(go, 7)), int)
