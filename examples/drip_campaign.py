"""A drip campaign: three mails in four weeks, unless the user unsubscribes.

``python drip_campaign.py`` lets the four weeks pass in a moment, with the clock of the test kit.
"""

import asyncio

import msgspec

from tenure import WorkflowContext, signal, workflow
from tenure.testing import open_engine


class Mail(msgspec.Struct):
    after: str
    template: str


CAMPAIGN = (Mail("1d", "hello"), Mail("7d", "tips"), Mail("20d", "offer"))
unsubscribe = signal("unsubscribe")


async def send(address: str, template: str) -> None:
    print(f"{template} to {address}")


@workflow
async def drip(ctx: WorkflowContext, address: str) -> int:
    for count, mail in enumerate(CAMPAIGN):
        try:
            await ctx.wait_signal(unsubscribe, timeout=mail.after)
        except TimeoutError:
            await ctx.step(send, address, mail.template)
        else:
            return count
    return len(CAMPAIGN)


async def main() -> None:
    async with open_engine() as engine, engine.worker([drip]):
        ann = await engine.start(drip, "ann@example.org")
        bob = await engine.start(drip, "bob@example.org")
        await engine.advance("10d")
        await bob.signal(unsubscribe)
        print("mails to bob:", await bob.result())
        await engine.advance("18d")
        print("mails to ann:", await ann.result())


if __name__ == "__main__":
    asyncio.run(main())
