"""Activities are declared once, checked at once, and found by their names."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure import Activity, RetryPolicy, activity
from tenure.sdk.activity.definition import signature_of
from tenure.sdk.activity.registry import Registry
from tenure.sdk.payload import Converter, Payload

CONVERTER = Converter()


@dataclasses.dataclass
class Order:
    id: int
    note: str = ""


@activity(start_to_close="30s")
async def charge(order: Order, amount: float = 1.0) -> str:
    return f"{order.id}:{amount}"


@activity(start_to_close=5, name="shrink-image", aliases=("shrink",))
def shrink(image: bytes) -> bytes:
    return image[:1]


@activity(start_to_close="1s", executor="process")
def crunch(number: int) -> int:
    return number


class Payments:
    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    @activity(start_to_close="30s", name="pay")
    async def pay(self, order: Order) -> str:
        return f"{self.prefix}{order.id}"

    @activity(start_to_close="30s")
    def refund(self, order: Order) -> str:
        return f"-{self.prefix}{order.id}"

    def helper(self) -> None: ...


def arguments_of(of: Activity[..., Any], *args: object, **kwargs: object) -> dict[str, Any]:
    return signature_of(of).decode(CONVERTER, of.call(*args, **kwargs).payload)


async def test_a_declared_activity_is_still_a_function() -> None:
    assert await charge(Order(1)) == "1:1.0"
    assert shrink(b"xyz") == b"x"
    payments = Payments("p")
    assert await payments.pay(Order(2)) == "p2"
    assert payments.refund(Order(2)) == "-p2"


def test_arguments_travel_by_name_and_arrive_typed() -> None:
    assert arguments_of(charge, Order(1), amount=2) == {"order": Order(1), "amount": 2.0}
    # What was not given is left to the worker's own default.
    assert arguments_of(charge, Order(1)) == {"order": Order(1)}
    assert arguments_of(Payments.pay, Order(3)) == {"order": Order(3)}
    assert charge.call(Order(1)).payload.data == b'{"order":{"id":1,"note":""}}'


def test_bytes_travel_as_they_are() -> None:
    payload = shrink.call(b"\0\xff").payload
    assert payload == Payload("bytes", b"\0\xff")
    assert signature_of(shrink).decode(CONVERTER, payload) == {"image": b"\0\xff"}
    from_json = Payload("json", b'{"image": "eHk="}')
    assert signature_of(shrink).decode(CONVERTER, from_json) == {"image": b"xy"}


def test_arguments_that_do_not_fit_are_refused_before_anything_is_sent() -> None:
    with pytest.raises(TypeError, match="activity charge: missing a required argument: 'order'"):
        charge.call()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        charge.call(Order(1), colour=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "timeout is missing; set start_to_close"),
        ({"start_to_close": "soon"}, "start_to_close must be a duration"),
        ({"start_to_close": 0}, "start_to_close must be between"),
        ({"start_to_close": -1}, "start_to_close must be between"),
        ({"start_to_close": float("nan")}, "start_to_close must be between"),
        ({"start_to_close": True}, "start_to_close must be a text"),
        ({"start_to_close": "2m", "schedule_to_close": "1m"}, "start_to_close must not be longer"),
        (
            {"schedule_to_close": "1m", "schedule_to_start": "2m"},
            "schedule_to_start must not be longer",
        ),
        ({"start_to_close": "1m", "heartbeat_timeout": "2m"}, "heartbeat_timeout must not"),
        ({"start_to_close": "1m", "priority": 10}, "priority"),
        ({"start_to_close": "1m", "queue": "a b"}, "queue"),
        ({"start_to_close": "1m", "name": "a b"}, "name"),
        ({"start_to_close": "1m", "labels": {"a": "\0"}}, "labels"),
        ({"start_to_close": "1m", "executor": "gpu"}, "executor"),
        ({"start_to_close": "1m", "retry": RetryPolicy(max_attempts=-1)}, "max_attempts"),
        ({"start_to_close": "1m", "retry": RetryPolicy(backoff_coefficient=0.5)}, "backoff"),
        (
            {
                "start_to_close": "1m",
                "retry": RetryPolicy(initial_interval="2s", maximum_interval="1s"),
            },
            "maximum_interval",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused_at_the_declaration(
    settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=f"activity .*: .*{said}"):

        @activity(**settings)
        def job() -> None: ...


def test_misuse_of_the_decorator_says_what_to_write() -> None:
    with pytest.raises(TypeError, match=r'@activity\(start_to_close="30s"\)'):

        @activity
        def job() -> None: ...

    with pytest.raises(ValueError, match="event loop"):

        @activity(start_to_close="1s", executor="thread")
        async def other() -> None: ...

    with pytest.raises(TypeError, match="there is no option speed"):
        activity(start_to_close="1s", speed=1)(plain)  # type: ignore[call-arg]


def test_options_of_one_call_leave_the_declaration_alone() -> None:
    later = datetime(2030, 1, 1, tzinfo=UTC)
    changed = charge.with_options(
        queue="fast",
        priority=1,
        run_at=later,
        labels={"team": "a"},
        idempotency_key="o-1",
        schedule_to_close=timedelta(minutes=5),
        retry=RetryPolicy(max_attempts=3, non_retryable_error_types=(KeyError, "Blocked")),
    )
    assert changed.options.run_at_ms == 1_893_456_000_000
    wire = changed.options.to_wire("json")
    assert (wire.start_to_close_ms, wire.schedule_to_close_ms) == (30_000, 300_000)
    assert list(wire.retry.non_retryable_error_types) == ["KeyError", "Blocked"]
    assert charge.options.queue == "default"
    with pytest.raises(ValueError, match="time zone"):
        charge.with_options(run_at=datetime(2030, 1, 1))  # noqa: DTZ001
    with pytest.raises(ValueError, match="either delay or run_at"):
        charge.with_options(run_at=later, delay="1s")


@pytest.mark.parametrize("delay", ["0s", "0ms", 0, 0.0, timedelta(0), -3, timedelta(seconds=-1)])
def test_no_delay_and_an_instant_that_has_passed_both_mean_at_once(delay: Any) -> None:
    assert charge.with_options(delay=delay).options.delay_ms == 0
    past = charge.with_options(run_at=datetime(2001, 1, 1, tzinfo=UTC)).options
    assert past.run_at_ms == 978_307_200_000
    assert charge.with_options(run_at=datetime(1960, 1, 1, tzinfo=UTC)).options.run_at_ms == 0


def test_the_last_word_on_when_to_run_counts() -> None:
    later = charge.with_options(run_at=datetime(2030, 1, 1, tzinfo=UTC))
    at_once = later.with_options(delay=0).options
    assert (at_once.run_at_ms, at_once.delay_ms) == (0, 0)
    delayed = charge.with_options(delay="1m").with_options(run_at=datetime(2030, 1, 1, tzinfo=UTC))
    assert (delayed.options.run_at_ms, delayed.options.delay_ms) == (1_893_456_000_000, 0)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"run_at": "2030-01-01T00:00:00Z"}, r"run_at must be a datetime .*UTC.*, not str"),
        ({"run_at": 1_893_456_000}, "run_at must be a datetime .*, not int"),
        ({"retry": {"max_attempts": 3}}, r"retry must be a RetryPolicy, such as .*, not dict"),
        ({"retry": 3}, r"retry must be .*RetryPolicy\(max_attempts=3\), not int"),
        ({"labels": ["a"]}, "labels must be a mapping .*, not list"),
        ({"idempotency_key": 17}, "idempotency_key must be a text, not int"),
        ({"queue": None}, "queue must be a text, not NoneType"),
        ({"priority": "high"}, "priority must be a number .*, not str"),
        ({"delay": "soon"}, "delay must be a duration"),
        ({"delay": None}, "delay must be a text such as"),
        ({"retry": RetryPolicy(max_attempts="3")}, "max_attempts must be a number, not str"),  # type: ignore[arg-type]
        (
            {"retry": RetryPolicy(non_retryable_error_types="KeyError")},  # type: ignore[arg-type]
            r"non_retryable_error_types must be a tuple, such as \(KeyError,\), not str",
        ),
        (
            {"retry": RetryPolicy(non_retryable_error_types=(17,))},  # type: ignore[arg-type]
            "non_retryable_error_types must hold names or exception classes, not int",
        ),
    ],
)
def test_an_option_of_another_type_is_refused_with_what_to_pass(
    settings: dict[str, Any], said: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^activity charge: {said}"):
        charge.with_options(**settings)
    with pytest.raises((TypeError, ValueError), match=f"^activity plain: .*{said}"):
        activity(start_to_close="1s", **settings)(plain)


def test_a_worker_finds_activities_by_name_and_alias() -> None:
    payments = Payments("p")
    registry = Registry([charge, shrink, payments])
    assert registry.types == ["charge", "pay", "refund", "shrink", "shrink-image"]
    assert registry.get("shrink") is registry.get("shrink-image")
    assert len(registry.activities) == 4
    assert registry.get("pay").instance is payments
    with pytest.raises(LookupError, match="It has: charge, pay, refund"):
        registry.get("charg")


def test_one_method_of_an_instance_can_be_registered_alone() -> None:
    registry = Registry([Payments("p").refund])
    assert registry.types == ["refund"]
    assert registry.get("refund").invoke({"order": Order(1)}) == "-p1"


def test_a_subclass_has_the_activities_of_its_base_and_its_own() -> None:
    class Refunds(Payments):
        @activity(start_to_close="1s", name="refund_all")
        def refund(self, order: Order) -> str:
            return f"all of {order.id}"

    assert Registry([Refunds("p")]).types == ["pay", "refund_all"]


def plain() -> None: ...


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([plain], "plain is not an activity. Decorate the function"),
        ([Payments], "Payments is a class. Register an instance"),
        ([Payments.pay], r"Register an instance: Payments\(…\)"),
        ([object()], "is not an activity"),
        ([charge, charge.with_options(priority=1)], "Two activities are named 'charge'"),
        ([], "at least one activity"),
    ],
)
def test_what_cannot_be_registered_is_refused_with_what_to_do(
    given: list[object], said: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        Registry(given)


def test_a_process_runs_only_what_it_can_find() -> None:
    assert Registry([crunch]).types == ["crunch"]

    @activity(start_to_close="1s", executor="process")
    def local(number: int) -> int:
        return number

    class Cruncher:
        @activity(start_to_close="1s", executor="process")
        def crunch_more(self, number: int) -> int:
            return number

    with pytest.raises(TypeError, match="top level of a module"):
        Registry([local])
    with pytest.raises(TypeError, match="Make it a function"):
        Registry([Cruncher()])
    main = activity(start_to_close="1s", executor="process")(plain)
    main.__module__ = "__main__"
    with pytest.raises(TypeError, match="top level of a module"):
        Registry([main])
