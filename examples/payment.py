"""Charge a card once, however often the activity runs.

Two keys protect the money. The client's key makes the same order the same task; the key of the
activity, the same in every attempt, makes the gateway charge once when an attempt died after it
had charged and before it could report. Start a worker with ``tenure dev payment``, then
``python payment.py``.
"""

import asyncio
from dataclasses import dataclass

from tenure import ApplicationError, Client, RetryPolicy, activity


@dataclass
class Order:
    id: str
    card: str
    cents: int


@dataclass
class Receipt:
    charge_id: str
    cents: int


class Gateway:
    """Stands for a payment service that knows idempotency keys, as the real ones do."""

    def __init__(self) -> None:
        self.charges: dict[str, Receipt] = {}

    def charge(self, card: str, cents: int, *, idempotency_key: str) -> Receipt:
        if card == "blocked":
            raise PermissionError(card)
        known = self.charges.get(idempotency_key)
        if known is None:
            known = self.charges[idempotency_key] = Receipt(f"ch-{len(self.charges) + 1}", cents)
        return known


gateway = Gateway()


@activity(start_to_close="30s", retry=RetryPolicy(initial_interval="1s", max_attempts=5))
def charge(order: Order) -> Receipt:
    """Charge an order; a blocked card is final, everything else is tried again."""
    try:
        key = activity.info().idempotency_key
        return gateway.charge(order.card, order.cents, idempotency_key=key)
    except PermissionError as error:
        raise ApplicationError(
            "the card is blocked", order.id, type="CardBlocked", non_retryable=True
        ) from error


async def main() -> None:
    order = Order("o-17", "4242", 990)
    async with Client() as client:
        # Clicking twice is one task: the second call returns the handle of the first.
        for _ in range(2):
            handle = await client.enqueue(charge.with_options(idempotency_key=order.id), order)
            print(handle.task_id, await handle.result())


if __name__ == "__main__":
    asyncio.run(main())
