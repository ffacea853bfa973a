"""A workflow of two steps with a pause between them; it goes on when its worker was killed.

Start ``tenure dev`` and ``tenure worker first_workflow``, each in a terminal of its own, then
``python first_workflow.py``. Kill the worker during the pause, and start it again.
"""

import asyncio

from tenure import Client, WorkflowContext, workflow


def reserve(item: str) -> str:
    print(f"reserving a {item}", flush=True)
    return f"one {item}"


def ship(parcel: str) -> str:
    print(f"shipping {parcel}", flush=True)
    return f"{parcel} is on its way"


@workflow
async def sell(ctx: WorkflowContext, item: str) -> str:
    parcel = await ctx.step(reserve, item)
    await ctx.sleep("10s")
    return await ctx.step(ship, parcel)


async def main() -> None:
    async with Client() as client:
        run = await client.start(sell, "lamp")
        print(await run.result())


if __name__ == "__main__":
    asyncio.run(main())
