"""Calls that end elsewhere: queued activities and child runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from tenure.errors import NotFound, Unavailable
from tenure.sdk.activity.decorator import activity
from tenure.sdk.failure import ApplicationError, ChildFailed, StepFailed, TaskCancelled, TaskFailed
from tenure.sdk.workflow.context import WorkflowContext
from tenure.sdk.workflow.definition import workflow
from tenure.sdk.workflow.ending import Parked, Raised, Refused, Returned
from tenure.sdk.workflow.journal import Kind
from tenure.sdk.workflow.signal import signal
from tenure.v1 import journal_pb2
from tests.sdk.workflow.model import IDENTITY, Model

stop = signal("stop")
hurry = signal("hurry", int)


class Order(msgspec.Struct):
    number: int


@activity(start_to_close="30s")
async def charge(order: Order, *, note: str = "") -> str:
    return f"{order.number}{note}"


@activity(start_to_close="30s")
def refuse(order: Order) -> None:
    raise ApplicationError("the card is blocked", order, type="CardBlocked")


class Payments:
    def __init__(self) -> None:
        raise AssertionError("a call needs no instance")

    @activity(start_to_close="30s")
    async def refund(self, order: Order) -> int:
        return order.number


@workflow
async def ship(ctx: WorkflowContext, order: Order) -> int:
    return len(await ctx.execute(charge, order))


@workflow
async def fail(_ctx: WorkflowContext) -> None:
    raise ValueError("no")


def play(body: Any, *args: Any, seed: int = 0) -> Model:
    model = Model(body, *args, seed=seed, code=(charge, refuse, ship, fail))
    model.play()
    return model


def test_a_queued_activity_is_spawned_once_and_its_value_is_typed() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> str:
        return await ctx.execute(charge.with_options(priority=1, queue="fast"), Order(7), note="!")

    model = play(body)

    assert isinstance(model.ending, Returned)
    assert model.ending.value == "7!"
    (child,) = model.children.by_id.values()
    task = child.made.task
    assert (task.priority, task.task_queue, task.type) == (1, "fast", "charge")
    assert child.made.key == "charge"
    assert [each.kind for each in model.journal] == [Kind.CHILD]


def test_a_method_is_called_without_an_instance() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        ctx.execute(Payments.refund, Order(1), on_cancel="abandon")
        await ctx.sleep(0)

    model = Model(body, code=(charge,))
    model.children.is_slow = True
    model.play()

    (child,) = model.children.by_id.values()
    assert child.made.task.input == b'{"order":{"number":1}}'
    assert child.made.close_policy == journal_pb2.CLOSE_POLICY_ABANDON


def test_arguments_that_do_not_fit_are_refused_at_the_call() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> str:
        try:
            ctx.execute(charge, "seven")  # type: ignore[call-overload]
        except TypeError as error:
            return str(error)
        return ""

    model = play(body)

    assert isinstance(model.ending, Returned)
    assert "parameter order must be Order, not str" in model.ending.value
    assert not model.children.by_id


async def _numbers() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda ctx: ctx.execute(ship, Order(1)), "ship is a workflow: write ctx.child(ship, …)"),
        (lambda ctx: ctx.map(ship, [1]), "ship is a workflow: write ctx.child(ship, …)"),
        (
            lambda ctx: ctx.child(charge, Order(1)),
            "charge is an activity: write ctx.execute(charge, …)",
        ),
        (
            lambda ctx: ctx.execute(charge(Order(1))),
            "a value of type coroutine: write ctx.execute(greet, name), not ctx.execute(greet(",
        ),
        (
            lambda ctx: ctx.execute("7"),
            "not a value of type str: write ctx.execute(greet, name), not ctx.execute(greet(name))",
        ),
        (
            lambda ctx: ctx.map("7", [1]),
            "write ctx.map(greet, names), not ctx.map(greet(name), names)",
        ),
        (
            lambda ctx: ctx.child("nope"),
            "Give the workflow and its arguments: ctx.child(sell, item).",
        ),
        (lambda ctx: ctx.child(len), "len is not a workflow. Decorate the function"),
        (lambda ctx: ctx.execute(len), "len is not an activity. Decorate the function"),
        (
            lambda ctx: ctx.map(charge, _numbers()),
            "collect it in a step first, and map over the list",
        ),
    ],
)
def test_a_wrong_call_is_refused_with_the_call_that_was_meant(
    call: Callable[[Any], Any], said: str
) -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        await call(ctx)

    model = play(body)

    assert isinstance(model.ending, Raised)
    assert isinstance(model.ending.error, TypeError)
    assert said in str(model.ending.error)
    assert not model.children.by_id


def test_an_idempotency_key_is_refused_because_a_call_makes_its_task_once() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        await ctx.execute(charge.with_options(idempotency_key="k"), Order(1))

    ending = play(body).ending

    assert isinstance(ending, Raised)
    assert "idempotency_key is for clients" in str(ending.error)


def test_a_failed_activity_raises_its_failure_with_typed_details() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> tuple[str, Order]:
        with pytest.raises(TaskFailed) as caught:
            await ctx.execute(refuse, Order(7))
        error = caught.value.error
        assert error is not None
        (order,) = error.details(Order)
        return error.type, order

    ending = play(body).ending

    assert isinstance(ending, Returned)
    assert ending.value == ("CardBlocked", Order(7))


def test_a_child_run_returns_its_value_and_has_the_id_of_its_call() -> None:
    ids = []

    @workflow
    async def body(ctx: WorkflowContext) -> int:
        child = ctx.child(ship, Order(12), id="ship-12", on_close="terminate")
        ids.append(child.id)
        return await child

    model = play(body)

    assert isinstance(model.ending, Returned)
    assert model.ending.value == 2
    ((task_id, child),) = model.children.by_id.items()
    assert set(ids) == {task_id}
    assert child.made.external_id == "ship-12"
    assert child.made.key == "child:ship"
    assert child.made.close_policy == journal_pb2.CLOSE_POLICY_TERMINATE


def test_a_child_run_has_the_id_of_its_options() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        one = ctx.child(ship.with_options(id="ship-1"), Order(1))
        await asyncio.gather(one, ctx.child(ship.with_options(id="ship-2"), Order(1), id="ship-3"))

    model = play(body)

    children = model.children.by_id.values()
    assert sorted(each.made.external_id for each in children) == ["ship-1", "ship-3"]


@pytest.mark.parametrize(
    ("options", "own_id", "problem"),
    [
        ({}, "", "id must not be empty"),
        ({}, "a\nb", "id must not be empty or have control characters"),
        ({"on_live": "reject"}, "x", "ship: on_live and on_finished are for clients"),
        ({"on_finished": "return"}, "x", "ship: on_live and on_finished are for clients"),
    ],
)
def test_a_bad_id_of_a_child_is_refused_at_the_call(
    options: dict[str, Any], own_id: str, problem: str
) -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        ctx.child(ship.with_options(**options), Order(1), id=own_id)

    model = Model(body, code=(charge, ship))
    ending = model.play()

    assert isinstance(ending, Raised)
    assert problem in str(ending.error)
    assert not model.children.reports


def test_a_child_run_that_fails_raises_child_failed() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> str:
        try:
            await ctx.child(fail)
        except ChildFailed as failed:
            return f"{failed.state}: {failed.error and failed.error.type}"
        return ""

    ending = play(body).ending

    assert isinstance(ending, Returned)
    assert ending.value == "failed: ValueError"


@pytest.mark.parametrize("seed", range(8))
def test_a_signal_to_a_child_is_sent_once_and_after_the_child_was_stored(seed: int) -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> int:
        child = ctx.child(ship, Order(1))
        await child.signal(hurry, 3)
        return await child

    model = Model(body, seed=seed, code=(charge, ship))
    model.on_spawned = lambda: model.crash() if seed % 2 else None
    model.on_recorded = lambda _: model.crash() if model.holder else None

    assert model.result() == 1
    assert not model.children.repeated
    (child_id,) = model.children.by_id
    signal_id = f"{model.identity.run_id}:1:signal:hurry"
    assert model.sent == {signal_id: (child_id, "hurry", b"3")}
    assert not model.sent_to_strangers


@pytest.mark.parametrize("seed", range(8))
def test_a_signal_to_an_id_that_the_run_gave_to_a_child_is_sent_after_the_child_was_stored(
    seed: int,
) -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> int:
        first = ctx.child(ship, Order(1), id="ship-1")
        second = ctx.child(ship, Order(2))
        await ctx.external("external:ship-1").signal(hurry, 3)
        await ctx.external(second.id).signal(hurry, 4)
        return await first + await second

    model = Model(body, seed=seed, code=(charge, ship))

    assert model.result() == 2
    assert len(model.sent) == 2
    assert not model.sent_to_strangers


def test_a_signal_to_a_run_that_does_not_exist_fails_its_step() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> str:
        try:
            await ctx.external("external:order-42").signal(stop)
        except StepFailed as failed:
            return str(failed.error and failed.error.type)
        return "sent"

    model = Model(body)
    model.send_problems = [NotFound("there is no run")]

    assert model.result() == "not_found"


def test_a_signal_is_tried_again_while_the_server_cannot_be_reached() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        await ctx.external("0198f2c4-0000-7000-8000-0123456789ff").signal(stop)

    model = Model(body)
    model.send_problems = [Unavailable("no server")]
    model.hand_out()

    ending = model.play()

    # The model tries nothing again: a retryable error is that of the step as it is.
    assert isinstance(ending, Raised)
    assert isinstance(ending.error, StepFailed)
    assert ending.error.error is not None
    assert ending.error.error.type == "Unavailable"


def test_a_bad_id_of_an_external_run_is_refused() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        ctx.external("order-42")

    ending = Model(body).play()

    assert isinstance(ending, Raised)
    assert isinstance(ending.error, ValueError)


@pytest.mark.parametrize(
    ("on_cancel", "after_ms", "asks"),
    [("try", 1_000, 1), ("wait", 1_300, 1), ("abandon", 1_000, 0)],
)
def test_a_cancelled_call_asks_waits_or_abandons(on_cancel: Any, after_ms: int, asks: int) -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> float:
        began = ctx.now()
        try:
            async with asyncio.timeout(1):
                await ctx.execute(charge, Order(1), on_cancel=on_cancel)
        except TimeoutError:
            pass
        late = ctx.now() - began
        await ctx.sleep("1s")
        return late.total_seconds() * 1_000

    model = Model(body, code=(charge,))
    model.children.is_slow = True
    late_ms = model.result()

    assert after_ms - 300 <= late_ms <= after_ms + 200
    assert len(model.children.cancels) == asks
    ends = [each.child.state for each in model.journal if each.child]
    assert len(ends) == asks


def test_a_cancelled_activity_raises_task_cancelled() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> str:
        step = ctx.execute(charge, Order(1))
        try:
            await step
        except TaskCancelled as cancelled:
            return str(cancelled)
        return ""

    model = Model(body, code=(charge,))
    model.children.is_slow = True

    def cancel() -> None:
        (child_id,) = model.children.by_id
        model.children.cancel(journal_pb2.ChildCancel(child_ids=[child_id], reason="by ann"))

    model.at(model.now_ms + 1_000, cancel)

    assert "was cancelled: by ann" in model.result()


@pytest.mark.parametrize("seed", range(20))
def test_a_child_that_is_open_is_not_spawned_again(seed: int) -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> list[str]:
        return await asyncio.gather(*(ctx.execute(charge, Order(each)) for each in range(5)))

    model = Model(body, seed=seed, code=(charge,))
    model.on_spawned = model.crash
    model.on_recorded = lambda _: model.crash() if model.holder else None

    assert model.result() == ["0", "1", "2", "3", "4"]
    assert not model.children.repeated
    assert len(model.children.by_id) == 5


def test_calls_of_one_moment_go_into_reports_of_a_thousand() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> int:
        return len(await asyncio.gather(*(ctx.execute(charge, Order(n)) for n in range(2_500))))

    model = Model(body, code=(charge,))

    assert model.result() == 2_500
    assert [len(each.children) for each in model.children.reports] == [1_000, 1_000, 500]


def test_a_report_stays_within_a_frame() -> None:
    @activity(start_to_close="30s")
    def store(text: str) -> int:
        return len(text)

    @workflow
    async def body(ctx: WorkflowContext) -> int:
        return sum(await asyncio.gather(*(ctx.execute(store, "x" * 200_000) for _ in range(10))))

    model = Model(body, code=(store,))

    assert model.result() == 2_000_000
    assert max(each.ByteSize() for each in model.children.reports) < 700_000


def test_arguments_beyond_the_limit_are_refused() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        ctx.execute(charge, Order(1), note="x" * 3_000_000)

    ending = play(body).ending

    assert isinstance(ending, Raised)
    assert "Store the data elsewhere" in str(ending.error)


def test_a_refused_report_parks_the_run() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        await ctx.execute(charge, Order(1))

    model = Model(body, code=(charge,))
    model.children.refusal = "limit_reached"

    assert model.play() == Refused("limit_reached", "refused")


def test_another_call_in_the_place_of_an_open_child_parks_the_run() -> None:
    calls: list[Any] = [charge]

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        await ctx.execute(calls[0], Order(1))

    model = Model(body, code=(charge, refuse))
    model.children.is_slow = True

    def change() -> None:
        calls[0] = refuse
        model.hand_out(is_cold=True)

    model.at(model.now_ms + 60_000, change)
    ending = model.play()

    assert isinstance(ending, Parked)
    assert ending.mismatch.problem == "changed"
    text = "at 0 the journal has charge (open child), the code calls refuse (test_child.py:"
    assert text in ending.mismatch.message


def test_a_step_in_the_place_of_an_open_child_parks_the_run() -> None:
    def charge_here(order: Order) -> str:
        return f"{order}"

    charge_here.__name__ = "charge"
    is_step = [False]

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        if is_step[0]:
            await ctx.step(charge_here, Order(1))
        else:
            await ctx.execute(charge, Order(1))

    model = Model(body, code=(charge,))
    model.children.is_slow = True

    def change() -> None:
        is_step[0] = True
        model.hand_out(is_cold=True)

    model.at(model.now_ms + 60_000, change)
    ending = model.play()

    assert isinstance(ending, Parked)
    assert ending.mismatch.problem == "changed"


def test_an_open_child_that_nobody_calls_parks_the_run() -> None:
    is_there = [True]

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        if is_there[0]:
            ctx.execute(charge, Order(1))
        await ctx.wait_signal(stop)

    model = Model(body, code=(charge,))
    model.children.is_slow = True

    def change() -> None:
        is_there[0] = False
        model.hand_out(is_cold=True)

    model.at(model.now_ms + 60_000, change)
    ending = model.play()

    assert isinstance(ending, Parked)
    assert ending.mismatch.problem == "removed"
    said = "removed: the journal has charge (open child), the code does not call it (it is at test_"
    assert ending.mismatch.text.startswith(said)


def test_a_body_that_returns_warns_of_open_children_with_their_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> str:
        ctx.execute(charge, Order(1))
        await ctx.sleep("1s")
        return "done"

    model = Model(body, code=(charge,))
    model.children.is_slow = True

    assert model.result() == "done"
    (message,) = [each.getMessage() for each in caplog.records]
    said = (
        f"The body of run {IDENTITY.run_id} (body) returned while 1 call was open: charge, called"
    )
    assert message.startswith(f"{said} at test_child.py:")
    assert message.endswith(" (it is cancelled). Await what it starts.")


def test_a_body_that_returns_warns_once_of_many_open_calls(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> str:
        for number in range(50):
            ctx.execute(charge, Order(number))
        await ctx.sleep("1s")
        return "done"

    model = Model(body, code=(charge,))
    model.children.is_slow = True

    assert model.result() == "done"
    (message,) = [each.getMessage() for each in caplog.records]
    assert "returned while 50 calls were open: charge, called at" in message
    assert message.count("called at") == 3
    assert message.endswith("; …. Await what it starts.")


@pytest.mark.parametrize("ends", ["returns", "raises"])
def test_a_body_does_not_warn_of_what_was_chosen_or_of_calls_when_it_raises(
    ends: str, caplog: pytest.LogCaptureFixture
) -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> str:
        ctx.child(ship, Order(1), on_close="terminate")
        ctx.child(ship, Order(2), on_close="abandon")
        ctx.execute(charge, Order(3), on_cancel="abandon")
        if ends == "raises":
            ctx.execute(charge, Order(4))
        await ctx.sleep("1s")
        if ends == "raises":
            raise ValueError("no stock")
        return "done"

    model = Model(body, code=(charge, ship))
    model.children.is_slow = True

    assert isinstance(model.play(), Returned if ends == "returns" else Raised)
    assert not [each for each in caplog.records if each.levelname == "WARNING"]


def test_a_child_to_abandon_is_started_by_a_body_that_returns_at_once() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        ctx.child(ship, Order(1), on_close="abandon")
        ctx.execute(charge, Order(2))

    model = play(body)

    assert isinstance(model.ending, Returned)
    assert [each.made.key for each in model.children.by_id.values()] == ["child:ship"]


def test_a_cancel_of_the_run_reaches_its_open_child_and_clean_up_may_call_others() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        try:
            await ctx.execute(charge, Order(1))
        finally:
            await ctx.execute(refuse.with_options(queue="undo"), Order(2))

    model = Model(body, code=(charge, refuse))
    model.children.is_slow = True

    def cancel() -> None:
        model.cancel()
        model.children.is_slow = False

    model.at(model.now_ms + 1_000, cancel)
    ending = model.play()

    assert isinstance(ending, Raised)
    assert ending.is_cancel
    assert [each.made.key for each in model.children.by_id.values()] == ["charge", "refuse"]
    assert len(model.children.cancels) == 1


def test_a_run_says_which_children_it_waits_for() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        await asyncio.gather(ctx.execute(charge, Order(1)), ctx.wait_signal(stop))

    model = Model(body, code=(charge,))
    model.children.is_slow = True
    yields: list[Any] = []
    ended = model.ended
    model.ended = lambda held, ending: (yields.append(ending), ended(held, ending))  # type: ignore[assignment, func-returns-value]
    model.at(model.now_ms + 5_000, model.children.end_all)
    model.at(model.now_ms + 9_000, lambda: model.signal("stop", None))
    model.play()

    (child_id,) = model.children.by_id
    assert [(each.kind, each.key, each.detail) for each in yields[0].waits] == [
        ("child", "charge", child_id),
        ("signal", "stop", ""),
    ]


def test_a_run_lingers_for_a_child_that_ends_soon_and_yields_if_it_does_not() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> str:
        return await ctx.execute(charge, Order(1))

    model = Model(body, code=(charge,))
    model.children.is_slow = True
    model.hand_out()
    assert model.holder is not None
    model.holder.may_linger = True
    yielded_ms: list[int] = []
    ended = model.ended

    def note(held: Any, ending: Any) -> None:
        yielded_ms.append(model.now_ms)
        ended(held, ending)

    model.ended = note  # type: ignore[method-assign, assignment]
    model.at(model.now_ms + 5_000, model.children.end_all)
    began_ms = model.now_ms
    model.play()

    assert 200 <= yielded_ms[0] - began_ms <= 300
