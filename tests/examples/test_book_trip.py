"""The saga: booked, undone after a failure, undone after a cancel, and killed at every point."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples import book_trip as example
from examples.book_trip import Booking, Trip, book_trip
from tenure import TaskCancelled, TaskFailed
from tenure.testing import TestEngine, assert_survives
from tests.examples.stage import Stage

ACTIVITIES = [
    example.book_flight,
    example.cancel_flight,
    example.book_hotel,
    example.cancel_hotel,
    example.charge,
]
UNDONE = ["hotel t-2 cancelled", "flight t-2 cancelled"]


@pytest.fixture
def bookings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "bookings.txt"
    monkeypatch.setattr(example, "BOOKINGS", path)
    return path


def written(bookings: Path) -> list[str]:
    return bookings.read_text().splitlines()


def test_a_trip_is_booked_and_one_that_cannot_be_paid_is_undone(stage: Stage) -> None:
    file = stage.folder / "bookings.txt"
    with stage.worker("book_trip"):
        said = stage.run("book_trip.py", "t-1", "4242")
        assert said == ["Booking(flight='flight of t-1', hotel='hotel of t-1')"]
        with stage.script("book_trip.py", "t-2", "expired") as failing:
            assert failing.process.wait() == 1
            assert "the card has expired" in failing.lines[-1]
    lines = file.read_text().splitlines()
    assert lines[:3] == ["flight t-1 booked", "hotel t-1 booked", "trip t-1 paid"]
    assert lines[3:] == ["flight t-2 booked", "hotel t-2 booked", *UNDONE]


async def test_a_cancelled_trip_is_undone(engine: TestEngine, bookings: Path) -> None:
    # Nobody books hotels, so the trip waits for one.
    working = [each for each in ACTIVITIES if each is not example.book_hotel]
    async with engine.worker([book_trip, *working]):
        run = await engine.start(book_trip, Trip("t-2", "4242"))
        await engine.advance("1m")
        await run.cancel("ill")
        with pytest.raises(TaskCancelled, match="ill"):
            await engine.advance_until(run.result())
    assert written(bookings) == ["flight t-2 booked", *UNDONE]


async def test_the_error_of_the_card_is_that_of_the_run(engine: TestEngine, bookings: Path) -> None:
    async with engine.worker([book_trip, *ACTIVITIES]):
        run = await engine.start(book_trip, Trip("t-2", "expired"))
        with pytest.raises(TaskFailed, match="the card has expired"):
            await engine.advance_until(run.result())
    assert written(bookings)[-2:] == UNDONE


async def test_a_booking_survives_a_crash_at_every_point(
    engine: TestEngine, bookings: Path
) -> None:
    ended = await assert_survives(book_trip, Trip("t-1", "4242"), engine=engine, code=ACTIVITIES)
    assert ended == Booking("flight of t-1", "hotel of t-1")
    assert not any("cancelled" in line for line in written(bookings))
