"""A report for each night, also for those on which nobody was there.

The report is of the day before. It takes that from the planned time of its fire, not from the
clock: so it is right when the fire is late, caught up after an outage, or backfilled. Start a
worker with ``tenure dev nightly_report``, and run ``python nightly_report.py`` with each deploy.
See what comes with ``tenure schedules next nightly-report``, and what has come with ``tenure
schedules fires nightly-report``.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from tenure import Client, Schedule, activity

NIGHTLY = Schedule(
    "0 2 * * *",
    zone="Europe/Berlin",
    # After an outage the nights of the last week are done, one after the other.
    overlap="allow",
    catchup_window="7d",
    pause_after_failures=5,
    note="sales of the day before",
)


@activity(start_to_close="10m")
async def report(shop: str) -> str:
    planned = activity.info().fire_at
    assert planned is not None, "started by something else than a schedule"
    day = planned.astimezone(ZoneInfo(NIGHTLY.zone)).date() - timedelta(days=1)
    return f"sales of {shop} on {day}"


async def main() -> None:
    async with Client() as client:
        info = await client.schedules.put("nightly-report", NIGHTLY, report, "north")
        print(f"{info.id} is {info.state}")
        # The first nights of the year came before there was a schedule.
        first, last = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 4, tzinfo=UTC)
        done = await client.schedules.backfill("nightly-report", first, last)
        for fire in done.started:
            print(await client.handle(fire.task_id, result=str).result())


if __name__ == "__main__":
    asyncio.run(main())
