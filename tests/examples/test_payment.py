"""Payments: two attempts and one charge; a blocked card is final."""

from __future__ import annotations

import pytest

from examples import payment
from examples.payment import Order, Receipt, charge
from tenure import Client, TaskFailed
from tenure.testing import TestEngine
from tests.examples.stage import Stage
from tests.sdk.guideline.scene import outcomes


class ForgetfulGateway(payment.Gateway):
    """Charges, and loses its first answer: what a crash between the two looks like."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def charge(self, card: str, cents: int, *, idempotency_key: str) -> Receipt:
        self.calls.append(idempotency_key)
        receipt = super().charge(card, cents, idempotency_key=idempotency_key)
        if len(self.calls) == 1:
            raise ConnectionResetError("by peer")
        return receipt


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> ForgetfulGateway:
    made = ForgetfulGateway()
    monkeypatch.setattr(payment, "gateway", made)
    return made


async def test_two_attempts_are_one_charge(
    engine: TestEngine, engine_client: Client, gateway: ForgetfulGateway
) -> None:
    async with engine.worker([charge]):
        handle = await engine_client.enqueue(charge, Order("o-17", "4242", 990))
        assert await engine.advance_until(handle.result()) == Receipt("ch-1", 990)
    assert await outcomes(handle) == ["failed", "succeeded"]
    assert len(gateway.calls) == 2
    assert list(gateway.charges.values()) == [Receipt("ch-1", 990)]


async def test_a_blocked_card_is_final_and_names_the_order(
    engine: TestEngine, engine_client: Client
) -> None:
    async with engine.worker([charge]):
        with pytest.raises(TaskFailed, match="the card is blocked") as caught:
            await engine_client.run(charge, Order("o-18", "blocked", 990))
    error = caught.value.error
    assert error is not None
    assert (error.type, error.details(str), caught.value.attempt) == ("CardBlocked", ("o-18",), 1)


def test_clicking_twice_is_one_task(stage: Stage) -> None:
    with stage.worker("payment"):
        first, second = stage.run("payment.py")
    assert first == second
    assert "Receipt(charge_id='ch-1', cents=990)" in first
