"""A workflow that is a plain function: two suppliers are asked at the same time, one is chosen.

Start a worker with ``tenure dev purchase``. ``python purchase.py paper 20`` buys twenty packets.
``tenure runs signal RUN delivered`` says that they are here; after a week somebody is reminded.
"""

import asyncio
import sys

import msgspec

from tenure import SyncClient, SyncWorkflowContext, activity, signal, workflow

delivered = signal("delivered")


class Offer(msgspec.Struct):
    supplier: str
    price: int


@activity(start_to_close="30s")
def ask_near(item: str, count: int) -> Offer:
    return Offer(f"the near shop for {item}", 3 * count)


@activity(start_to_close="30s")
def ask_far(item: str, count: int) -> Offer:
    return Offer(f"the far shop for {item}", 2 * count)


@activity(start_to_close="30s")
def order(offer: Offer) -> str:
    return f"order at {offer.supplier}"


@activity(start_to_close="30s")
def cancel(order_id: str) -> None:
    print(f"cancelled: {order_id}", flush=True)


def remind(order_id: str) -> None:
    print(f"where is it? {order_id}", flush=True)


@workflow
def purchase(ctx: SyncWorkflowContext, item: str, count: int) -> str:
    asked = [ctx.begin(ask_near, item, count), ctx.begin(ask_far, item, count)]
    answered, silent = ctx.wait(asked, timeout="1h")
    for call in silent:
        call.cancel()
    if not answered:
        return "nobody has answered"
    offers = ctx.gather(*answered)
    order_id = ctx.execute(order, min(offers, key=lambda offer: offer.price))
    try:
        ctx.wait_signal(delivered, timeout="7d")
    except TimeoutError:
        ctx.step(remind, order_id)
        ctx.wait_signal(delivered)
    except asyncio.CancelledError:
        ctx.execute(cancel, order_id)
        raise
    return f"{order_id} is here"


def main(item: str, count: int) -> None:
    with SyncClient() as client:
        run = client.start(purchase, item, count)
        print(run.run_id, flush=True)
        print(run.result())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
