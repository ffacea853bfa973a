"""Parent and children: the books of each shop are closed by a run of its own.

Start a worker with ``tenure dev close_month``, then ``python close_month.py 2026-04 cph osl sto``.
A shop that cannot be closed does not stop the others.
"""

import asyncio
import sys
from pathlib import Path

import msgspec

from tenure import ApplicationError, Client, TaskFailed, WorkflowContext, activity, workflow

# A real system calls somebody.
PAGED = Path("paged.txt")


class Report(msgspec.Struct):
    shop: str
    cents: int


@activity(start_to_close="1m")
def add_up(shop: str, month: str) -> int:
    if shop == "closed":
        raise ApplicationError("the shop has no books", type="NoBooks", non_retryable=True)
    return len(shop) * int(month.split("-")[1]) * 1_000


def file_report(report: Report, month: str) -> None:
    print(f"{month}: {report.shop} has {report.cents}")


@workflow
async def close_shop(ctx: WorkflowContext, shop: str, month: str) -> Report:
    report = Report(shop, await ctx.execute(add_up, shop, month))
    await ctx.step(file_report, report, month)
    return report


@activity(start_to_close="1m")
def page_someone(shops: list[str]) -> None:
    PAGED.write_text(" ".join(shops))


@workflow
async def close_month(ctx: WorkflowContext, month: str, shops: list[str]) -> list[Report]:
    # The id makes it impossible to close a shop twice at a time, also from elsewhere.
    runs = [ctx.child(close_shop, shop, month, id=f"close-{shop}-{month}") for shop in shops]
    ended = await asyncio.gather(*runs, return_exceptions=True)
    failed = [shop for shop, end in zip(shops, ended, strict=True) if isinstance(end, TaskFailed)]
    if failed:
        await ctx.execute(page_someone, failed)
    return [end for end in ended if isinstance(end, Report)]


async def main(month: str, shops: list[str]) -> None:
    async with Client() as client:
        run = await client.start(close_month, month, shops)
        for report in await run.result():
            print(report)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
