"""Polling for weeks: a run that looks every six hours and whose journal does not grow.

After 20 looks it continues as new: with the same id and the same handle, and an empty journal.
``python watch_shipment.py`` lets three weeks pass in a moment, with the clock of the test kit.
"""

import asyncio

from tenure import WorkflowContext, activity, workflow
from tenure.testing import open_engine

LOOKS = 20
DAY = 4
# What the carrier says, and at which of our looks it begins to say so.
NEWS = {"parcel 7": ((1, "packed"), (3 * DAY, "on its way"), (21 * DAY, "delivered"))}


def track(shipment: str, look: int) -> str:
    return max(news for news in NEWS[shipment] if news[0] <= look)[1]


@activity(start_to_close="30s")
async def notify(shipment: str, status: str) -> None:
    print(f"{shipment} is {status}")


@workflow
async def watch_shipment(
    ctx: WorkflowContext, shipment: str, last: str = "", looked: int = 0
) -> str:
    for look in range(looked + 1, looked + LOOKS + 1):
        status = await ctx.step(track, shipment, look)
        if status != last:
            await ctx.execute(notify, shipment, status)
            last = status
        if status == "delivered":
            return f"delivered after {ctx.info.generation} new beginnings"
        await ctx.sleep("6h")
    return ctx.continue_as_new(shipment, last, looked + LOOKS)


async def main() -> None:
    async with open_engine() as engine, engine.worker([watch_shipment, notify]):
        run = await engine.start(watch_shipment, "parcel 7")
        print(await engine.advance_until(run.result()))


if __name__ == "__main__":
    asyncio.run(main())
