"""How workflows and signals are declared, and what is refused there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tenure import RetryPolicy
from tenure.sdk.payload import BYTES, JSON, Payload
from tenure.sdk.workflow.context import WorkflowContext
from tenure.sdk.workflow.definition import workflow
from tenure.sdk.workflow.signal import signal
from tenure.sdk.workflow.step import step, step_function
from tenure.sdk.workflow.sync.context import SyncWorkflowContext
from tenure.v1 import task_pb2


class Order(msgspec.Struct):
    number: int
    note: str = ""


@workflow(timeout="30d", labels={"team": "shop"})
async def checkout(ctx: WorkflowContext, order: Order) -> int:  # noqa: ARG001 (it needs one)
    """Sell something."""
    return order.number


def test_a_workflow_has_the_name_and_the_text_of_its_function() -> None:
    assert checkout.name == "checkout"
    assert checkout.__doc__ == "Sell something."
    assert repr(checkout) == f"<workflow checkout of {__name__}.checkout>"
    assert workflow(name="buy")(checkout.function).name == "buy"


def test_options_of_one_run_leave_the_workflow_as_it_is() -> None:
    once = checkout.with_options(idempotency_key="order-1", priority=1, queue="shop", delay="5m")
    assert once.name == "checkout"
    assert once.options.idempotency_key == "order-1"
    assert once.options.delay_ms == 300_000
    assert once.options.timeout_ms == checkout.options.timeout_ms
    assert once.options.labels == {"team": "shop"}
    assert checkout.options.idempotency_key == ""
    later = once.with_options(run_at=datetime(2030, 1, 31, tzinfo=UTC))
    assert (later.options.delay_ms, later.options.run_at_ms) == (0, 1_896_048_000_000)


def test_a_run_is_retried_only_if_that_was_asked_for() -> None:
    plain = checkout.options.to_wire(JSON)
    assert plain.kind == task_pb2.TASK_KIND_WORKFLOW
    assert plain.schedule_to_close_ms == 30 * 86_400_000
    assert not plain.HasField("retry")
    retried = checkout.with_options(retry=RetryPolicy(max_attempts=3)).options.to_wire(JSON)
    assert retried.retry.maximum_attempts == 3


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"timeuot": "1m"}, "workflow checkout: there is no option timeuot; did you mean timeout"),
        ({"start_to_close": "1m"}, "workflow checkout: there is no option start_to_close"),
        ({"timeout": "soon"}, "workflow checkout: timeout"),
        ({"priority": 11}, "workflow checkout: priority"),
        ({"queue": ""}, "workflow checkout: queue"),
        ({"labels": 3}, "workflow checkout: labels must be a mapping"),
        ({"delay": "1m", "run_at": datetime(2030, 1, 1, tzinfo=UTC)}, "either delay or run_at"),
        ({"retry": RetryPolicy(max_attempts=-1)}, "workflow checkout: max_attempts"),
        ({"idempotency_key": "k" * 70_000}, "workflow checkout: idempotency_key"),
    ],
)
def test_bad_options_are_refused_by_name(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=problem):
        checkout.with_options(**settings)
    with pytest.raises((TypeError, ValueError), match=problem):
        workflow(**settings)(checkout.function)


def test_what_cannot_be_a_workflow_is_refused_where_it_is_declared() -> None:
    async def bare() -> None: ...

    def plain_bare() -> None: ...

    def yields(_ctx: SyncWorkflowContext) -> Iterator[int]:
        yield 1

    async def yields_too(_ctx: WorkflowContext) -> AsyncIterator[int]:
        yield 1

    declare: Any = workflow
    with pytest.raises(TypeError, match="needs a first parameter: the WorkflowContext"):
        declare(bare)
    with pytest.raises(TypeError, match="needs a first parameter: the SyncWorkflowContext"):
        declare(plain_bare)
    for each in (yields, yields_too):
        with pytest.raises(TypeError, match=r"returns its result: .*yields.* yields"):
            declare(each)
    with pytest.raises(TypeError, match="function that returns its result: Order is not"):
        declare(Order)
    with pytest.raises(ValueError, match="workflow a b"):
        workflow(name="a b")(checkout.function)


def test_a_body_is_declared_with_the_context_of_its_kind() -> None:
    def plain(ctx: WorkflowContext) -> None: ...

    async def asynchronous(ctx: SyncWorkflowContext) -> None: ...

    def with_class(ctx: Any) -> None: ...

    with_class.__annotations__["ctx"] = WorkflowContext
    declare: Any = workflow
    for each in (plain, with_class):
        text = "is a plain function: its context is a SyncWorkflowContext, or write async def"
        with pytest.raises(TypeError, match=text):
            declare(each)
    with pytest.raises(TypeError, match=r"an async function: its context is a WorkflowContext$"):
        declare(asynchronous)
    assert not workflow(name="nothing")(lambda _ctx: None).is_async
    assert checkout.is_async


def test_arguments_that_do_not_fit_name_the_workflow() -> None:
    with pytest.raises(TypeError, match="workflow checkout: parameter order must be Order, not"):
        checkout.signature.encode(checkout.signature.bind(("order-1",), {}))
    with pytest.raises(TypeError, match="workflow checkout: missing a required argument"):
        checkout.signature.bind((), {})


def test_a_signal_takes_values_of_its_type_only() -> None:
    approve = signal("approve", Order)
    assert approve.encode(Order(7)) == Payload(JSON, b'{"number":7,"note":""}')
    with pytest.raises(TypeError, match="signal approve: The value must be Order, not"):
        approve.encode(7)  # type: ignore[arg-type]
    assert signal("stop").encode(None) == Payload(JSON, b"null")
    with pytest.raises(TypeError, match="signal stop"):
        signal("stop").encode(7)  # type: ignore[arg-type]
    assert signal("photo", bytes).encode(b"\xff") == Payload(BYTES, b"\xff")
    with pytest.raises(ValueError, match="signal 'a b'"):
        signal("a b")


def test_a_function_is_marked_as_a_step_with_and_without_options() -> None:
    @step
    async def track() -> int:
        return 1

    @step(timeout="30s", name="book")
    async def reserve() -> int:
        return 2

    assert step_function(track).options.name == "track"
    assert step_function(reserve).options.timeout_ms == 30_000
