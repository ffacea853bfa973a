"""Activity organization: related activities in one class, registered at once, referenced typed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

import pytest

from tenure import Client, Handle, Worker, activity
from tenure.testing import TestEngine


@dataclass
class Receipt:
    id: str
    cents: int


class Gateway:
    """Stands for a client with a connection pool."""

    def __init__(self, prefix: str) -> None:
        self.charged: list[int] = []
        self._prefix = prefix

    def charge(self, cents: int) -> str:
        self.charged.append(cents)
        return f"{self._prefix}-{len(self.charged)}"


class PaymentActivities:
    """One class per service that is integrated; one call of it per method."""

    def __init__(self, gateway: Gateway, currency: str = "EUR") -> None:
        self._gateway = gateway
        self._currency = currency

    @activity(start_to_close="10s")
    def charge_card(self, cents: int) -> Receipt:
        return Receipt(self._gateway.charge(cents), cents)

    @activity(start_to_close="10s")
    async def show_amount(self, cents: int) -> str:
        return f"{cents / 100:.2f} {self._currency}"

    @activity(start_to_close="10s", name="RefundPayment", aliases=("refund", "refund_v1"))
    def refund_payment(self, receipt: Receipt) -> int:
        return -receipt.cents

    def is_open(self) -> bool:
        """No activity: what is not decorated is not registered."""
        return bool(self._gateway)


# -- Struct-based activities


async def test_activities_of_one_instance_share_its_clients_and_settings(
    engine: TestEngine, client: Client
) -> None:
    gateway = Gateway("ch")
    async with engine.worker([PaymentActivities(gateway, currency="NOK")]):
        assert await client.run(PaymentActivities.charge_card, 990) == Receipt("ch-1", 990)
        assert await client.run(PaymentActivities.charge_card, 10) == Receipt("ch-2", 10)
        assert await client.run(PaymentActivities.show_amount, 990) == "9.90 NOK"
    assert gateway.charged == [990, 10]


async def test_dependencies_are_injected_so_that_two_workers_can_have_different_ones(
    engine: TestEngine, client: Client
) -> None:
    live, sandbox = Gateway("live"), Gateway("sandbox")
    async with (
        engine.worker([PaymentActivities(live)], queue="live"),
        engine.worker([PaymentActivities(sandbox)], queue="sandbox"),
    ):
        for queue in ("live", "sandbox"):
            charge = PaymentActivities.charge_card.with_options(queue=queue)
            assert (await client.run(charge, 1)).id == f"{queue}-1"


def test_a_method_is_tested_with_a_plain_call_and_a_dependency_of_the_test() -> None:
    assert PaymentActivities(Gateway("test")).charge_card(5) == Receipt("test-1", 5)


# -- Registration


def test_registering_an_instance_registers_all_of_its_activities_and_nothing_else() -> None:
    worker = Worker(activities=[PaymentActivities(Gateway(""))])
    assert worker.types == ("RefundPayment", "charge_card", "refund", "refund_v1", "show_amount")


def test_inherited_activities_are_registered_and_overridden_ones_once() -> None:
    class TestPayments(PaymentActivities):
        @activity(start_to_close="1s")
        def charge_card(self, cents: int) -> Receipt:
            return Receipt("none", cents)

    assert "charge_card" in Worker(activities=[TestPayments(Gateway(""))]).types


async def test_names_and_aliases_of_ones_own_reach_the_same_method(
    engine: TestEngine, client: Client
) -> None:
    """A renamed activity still runs the tasks that were enqueued under its old names."""
    async with engine.worker([PaymentActivities(Gateway("ch"))]):
        assert await client.run(PaymentActivities.refund_payment, Receipt("ch-1", 990)) == -990
        for name in ("RefundPayment", "refund", "refund_v1"):
            handle = await client.enqueue_named(
                name, {"receipt": Receipt("ch-1", 5)}, result=int, start_to_close="10s"
            )
            assert await handle.result() == -5


def test_the_name_of_the_method_is_the_name_of_the_activity() -> None:
    assert PaymentActivities.charge_card.name == "charge_card"
    assert PaymentActivities.refund_payment.name == "RefundPayment"


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([PaymentActivities], TypeError, "is a class. Register an instance"),
        ([PaymentActivities.charge_card], TypeError, "is a method. Register an instance"),
        ([Gateway("")], TypeError, "is not an activity"),
        ([], ValueError, "at least one activity"),
        (
            [PaymentActivities(Gateway("a")), PaymentActivities(Gateway("b"))],
            ValueError,
            "Two activities are named",
        ),
    ],
    ids=["class", "unbound method", "no activities", "nothing", "twice"],
)
def test_what_cannot_be_registered_is_refused_with_what_to_do(
    given: list[object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Worker(activities=given)


# -- References


async def test_the_class_is_the_reference_and_needs_no_instance_where_tasks_are_made(
    engine: TestEngine, client: Client
) -> None:
    """The types below are checked by mypy: ``assert_type`` fails in ``make check``."""
    async with engine.worker([PaymentActivities(Gateway("ch"))]):
        handle = await client.enqueue(PaymentActivities.charge_card, 990)
        assert_type(handle, Handle[Receipt])
        assert_type(await handle.result(), Receipt)
        assert_type(await client.run(PaymentActivities.show_amount, cents=990), str)
        assert (await handle.result()).id == "ch-1"


async def test_wrong_arguments_are_refused_by_the_types_and_before_anything_is_sent(
    client: Client,
) -> None:
    with pytest.raises(TypeError, match="charge_card: missing a required argument: 'cents'"):
        await client.enqueue(PaymentActivities.charge_card)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'euros'"):
        await client.enqueue(PaymentActivities.charge_card, 9, euros=9)  # type: ignore[call-arg]
    assert [each async for each in client.list()] == []


# -- Guidelines


async def test_one_class_per_context_lets_workers_specialise(
    engine: TestEngine, client: Client
) -> None:
    """Each worker gets only the tasks whose activities it has."""

    class MailActivities:
        @activity(start_to_close="10s")
        def send_notification(self, to: str) -> str:
            return f"{to}: {activity.info().worker_id}"

    async with (
        engine.worker([PaymentActivities(Gateway("ch"))]) as payments,
        engine.worker([MailActivities()]) as mail,
    ):
        assert payments.worker_id != mail.worker_id
        said = [await client.run(MailActivities.send_notification, "ann") for _ in range(5)]
        assert set(said) == {f"ann: {mail.worker_id}"}
        assert (await client.run(PaymentActivities.charge_card, 1)).id == "ch-1"
