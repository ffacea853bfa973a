"""A re-run says how a body fits its journal, and carries nothing out."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Any

import msgspec
import pytest

from tenure import SyncWorkflowContext, WorkflowContext, signal, workflow
from tenure.sdk.journal_check.finding import Finding, Verdict
from tenure.sdk.journal_check.rerun import rerun
from tenure.v1 import task_pb2
from tests.sdk.journal_check import journal
from tests.sdk.journal_check.journal import recorded, sleep, step

done: list[str] = []
go = signal("go")


def reserve(item: str) -> str:
    done.append(item)
    return item


def charge(item: str) -> str:
    done.append(item)
    return item


class Receipt(msgspec.Struct):
    item: str
    currency: str = "EUR"


def receipt() -> Receipt:
    return Receipt("lamp")


@pytest.fixture(autouse=True)
def _nothing_is_carried_out() -> Any:
    done.clear()
    yield
    assert done == []


@workflow
async def sell(ctx: WorkflowContext, item: str = "lamp") -> str:
    parcel = await ctx.step(reserve, item)
    await ctx.sleep("1h")
    ctx.log.warning("asking for money")
    return await ctx.step(charge, parcel)


@workflow(name="sell")
def plain_sell(ctx: SyncWorkflowContext, item: str = "lamp") -> str:
    parcel = ctx.step(reserve, item)
    ctx.sleep("1h")
    ctx.log.warning("asking for money")
    return ctx.step(charge, parcel)


@pytest.mark.parametrize("code", [sell, plain_sell], ids=["async", "plain"])
@pytest.mark.parametrize(
    "contents",
    [
        (),
        (step("reserve", 0, "lamp"),),
        (step("reserve", 0, "lamp"), sleep("sleep", 1)),
        (step("reserve", 0, "lamp"), sleep("sleep", 1), step("charge", 2, "lamp")),
    ],
)
def test_a_run_that_fits_is_safe_wherever_it_stands(contents: Any, code: Any) -> None:
    assert rerun(code, recorded("sell", *contents)) == Finding(verdict=Verdict.SAFE)


@pytest.mark.parametrize("code", [sell, plain_sell], ids=["async", "plain"])
@pytest.mark.parametrize(
    ("contents", "words"),
    [
        (
            (step("charge", 0, "lamp"),),
            "changed at position 1: at 0 the journal has charge (step), the code calls reserve (",
        ),
        (
            (step("reserve", 0, "lamp"), step("charge", 2, "lamp")),
            "removed at position 2: the journal has charge",
        ),
        (
            (step("reserve", 1, "lamp"),),
            "moved at position 1: the journal has reserve as call 1 of its branch, the code makes",
        ),
        (
            (step("reserve", 0, 7),),
            "unreadable at position 1: what was recorded for reserve does not fit the code",
        ),
    ],
)
def test_a_run_that_would_park_is_told_with_what_was_recorded_and_what_is_called(
    contents: Any, words: str, code: Any
) -> None:
    found = rerun(code, recorded("sell", *contents))
    assert found.verdict is Verdict.PARKS
    assert found.message.startswith(words)
    assert found.position == len(contents)


def test_an_input_that_does_not_fit_would_park() -> None:
    found = rerun(sell, recorded("sell", input={"item": 7}))
    assert found.verdict is Verdict.PARKS
    assert found.message.startswith("The input does not fit workflow sell: ")


def test_a_body_that_raises_is_told_with_its_line() -> None:
    @workflow
    async def broken(ctx: WorkflowContext) -> None:
        await ctx.step(reserve, "lamp")
        raise KeyError("price")

    journal_of = (step("reserve", 0, "lamp"),)
    found = rerun(broken, recorded("broken", *journal_of))
    assert found.verdict is Verdict.RAISES
    assert found.message.startswith("KeyError: 'price' (test_rerun.py:")
    assert found.message.endswith(" in broken)")
    # A run that has failed with it is what it was.
    ended = recorded("broken", *journal_of, status=journal.COMPLETED)
    assert rerun(broken, ended).verdict is Verdict.SAFE


def test_a_blocking_call_is_refused_in_a_check_too() -> None:
    @workflow
    async def nap(_ctx: WorkflowContext) -> None:
        time.sleep(60)  # noqa: ASYNC251 (it is refused)

    found = rerun(nap, recorded("nap"))
    assert found.verdict is Verdict.RAISES
    assert "blocks the thread (time.sleep): await ctx.sleep(…) instead" in found.message
    assert rerun(nap, recorded("nap"), guard="refuse").verdict is Verdict.RAISES


def test_a_run_that_was_cancelled_ends_as_recorded() -> None:
    contents = (step("reserve", 0, "lamp"), journal.mark(task_pb2.ENTRY_KIND_CANCEL))
    cancelling = recorded("sell", *contents, status=journal.CANCELLING)
    assert rerun(sell, cancelling).verdict is Verdict.SAFE


def test_a_failure_that_was_recorded_may_end_a_run_unless_its_code_went_on_with_it() -> None:
    failed = step("reserve", 0, error="sold out")
    running = recorded("sell", failed, status=journal.RUNNING)
    assert rerun(sell, running).verdict is Verdict.SAFE
    # The old code has caught it, and waits for something.
    found = rerun(sell, recorded("sell", failed))
    assert found.verdict is Verdict.RAISES
    assert found.message.startswith("StepFailed: Step reserve failed: ValueError: sold out (")


def test_a_body_that_does_not_come_to_rest_is_stopped_and_told() -> None:
    @workflow
    async def restless(_ctx: WorkflowContext) -> None:
        while True:  # noqa: ASYNC110 (it waits for nothing)
            await asyncio.sleep(0)

    @workflow
    async def busy(_ctx: WorkflowContext) -> None:
        while True:
            pass

    @workflow
    def plain(_ctx: SyncWorkflowContext) -> None:
        while True:
            pass

    @workflow
    def chatty(ctx: SyncWorkflowContext) -> None:
        while True:
            ctx.unread(go)

    for each in (restless, busy, plain, chatty):
        found = rerun(each, recorded(each.name), rest_s=0.1)
        assert found.verdict is Verdict.RESTLESS
        assert "waits for nothing, at " in found.message
    names = {"tenure-check", f"tenure-body-{recorded('any').run.run_id}"}
    assert not [each for each in threading.enumerate() if each.name in names]


async def test_it_works_inside_of_an_event_loop_too() -> None:
    waits = workflow(_waits)
    assert rerun(waits, recorded("waits")).verdict is Verdict.SAFE


async def _waits(ctx: WorkflowContext) -> None:
    await ctx.wait_signal(go)


def test_a_value_that_fits_only_by_a_default_is_a_warning() -> None:
    @workflow
    async def bill(ctx: WorkflowContext, given: Receipt) -> list[Receipt]:
        return [given, await ctx.step(receipt)]

    contents = (step("receipt", 0, {"item": "lamp"}),)
    found = rerun(bill, recorded("bill", *contents, input={"given": {"item": "lamp"}}))
    assert found.verdict is Verdict.SAFE
    assert found.warnings == (
        "the input was recorded without given.currency: the default is used",
        "receipt was recorded without currency: the default is used",
    )
    whole = {"item": "lamp", "currency": "EUR"}
    found = rerun(bill, recorded("bill", step("receipt", 0, whole), input={"given": whole}))
    assert found.warnings == ()


def test_a_body_that_is_checked_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    contents = (step("reserve", 0, "lamp"), sleep("sleep", 1))
    with caplog.at_level(logging.DEBUG):
        rerun(sell, recorded("sell", *contents))
    assert not caplog.records
