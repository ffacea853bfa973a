"""A saga: what was booked is cancelled again when the trip fails, and when it is cancelled.

Start a worker with ``tenure dev book_trip``. ``python book_trip.py t-1 4242`` books a trip; with
the card ``expired`` its flight and its hotel are given back. Both are in ``bookings.txt``.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from tenure import ApplicationError, Client, TaskFailed, WorkflowContext, activity, workflow

# Stands for the systems of an airline, a hotel and a bank.
BOOKINGS = Path("bookings.txt")


class Trip(msgspec.Struct):
    id: str
    card: str


class Booking(msgspec.Struct):
    flight: str
    hotel: str


def write(line: str) -> None:
    with BOOKINGS.open("a") as file:
        file.write(f"{line}\n")


@activity(start_to_close="30s")
def book_flight(trip: Trip) -> str:
    write(f"flight {trip.id} booked")
    return f"flight of {trip.id}"


@activity(start_to_close="30s")
def cancel_flight(trip: Trip) -> None:
    write(f"flight {trip.id} cancelled")


@activity(start_to_close="30s")
def book_hotel(trip: Trip) -> str:
    write(f"hotel {trip.id} booked")
    return f"hotel of {trip.id}"


@activity(start_to_close="30s")
def cancel_hotel(trip: Trip) -> None:
    write(f"hotel {trip.id} cancelled")


@activity(start_to_close="30s")
def charge(trip: Trip) -> None:
    if trip.card == "expired":
        raise ApplicationError("the card has expired", type="CardExpired", non_retryable=True)
    write(f"trip {trip.id} paid")


@workflow
async def book_trip(ctx: WorkflowContext, trip: Trip) -> Booking:
    undo: list[Callable[[], Awaitable[None]]] = []
    try:
        # Before the booking: what fails or is cancelled may have booked all the same.
        undo.append(lambda: ctx.execute(cancel_flight, trip))
        flight = await ctx.execute(book_flight, trip)
        undo.append(lambda: ctx.execute(cancel_hotel, trip))
        hotel = await ctx.execute(book_hotel, trip)
        await ctx.execute(charge, trip)
    except (TaskFailed, asyncio.CancelledError):
        for cancel in reversed(undo):
            await cancel()
        raise
    return Booking(flight, hotel)


async def main(trip: Trip) -> None:
    async with Client() as client:
        run = await client.start(book_trip, trip)
        print(await run.result())


if __name__ == "__main__":
    asyncio.run(main(Trip(sys.argv[1], sys.argv[2])))
