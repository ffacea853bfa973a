"""Seats, and which servers drive: records in, records out."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

from tenure.core.seat.record import Seat, SeatNote, SeatView
from tenure.core.seat.share import Survey
from tenure.core.worker.record import DRIVEN, Worker, WorkerMode
from tenure.store.table.codec import AnyRow
from tenure.store.table.row_set import RowSet, Table
from tenure.store.transaction import Tx


def _seat_from(row: AnyRow) -> Seat:
    return Seat(row[0], row[1], WorkerMode(row[2]), row[3], row[4], bool(row[5]), *row[6:10])


class Look(NamedTuple):
    """The time of a round, and since when a server has to have shown itself to count."""

    now_ms: int
    since_ms: int


async def read_seats(tx: Tx, worker_ids: Iterable[str]) -> list[Seat]:
    """Read seats; the lock of its worker protects each of them."""
    rows: Sequence[AnyRow] = await tx.each("read_seats", [(each,) for each in sorted(worker_ids)])
    return [_seat_from(row) for row in rows]


async def view_seats(tx: Tx, worker_ids: Iterable[str]) -> dict[str, SeatView]:
    """Read seats with what their drivers saw last, by worker."""
    rows: Sequence[AnyRow] = await tx.each("read_seats", [(each,) for each in sorted(worker_ids)])
    views = {}
    for row in rows:
        call_at_ms, call_ms, call_error, unconfirmed_count, kill_count = row[10:15]
        note = SeatNote(
            worker_id=row[0],
            call_at_ms=call_at_ms,
            call_ms=call_ms,
            call_error=call_error,
            unconfirmed_count=unconfirmed_count,
            kill_count=kill_count,
        )
        views[cast("str", row[0])] = SeatView(_seat_from(row), note)
    return views


async def survey_seats(tx: Tx, mode: WorkerMode, server_id: str, look: Look) -> Survey:
    """Count the open seats of a mode, those of a server, and the servers that drive."""
    rows = await tx.one("survey_seats", mode.value, server_id, look.since_ms, look.now_ms)
    seat_count, own_count, server_count = cast("tuple[int, int, int]", tuple(rows[0]))
    return Survey(seat_count=seat_count, own_count=own_count, server_count=server_count)


async def find_free_seats(tx: Tx, mode: WorkerMode, look: Look, *, amount: int) -> list[Seat]:
    """Return open seats that no server drives."""
    rows = await tx.one("find_free_seats", mode.value, look.since_ms, look.now_ms, amount)
    return [_seat_from(row) for row in rows]


async def list_own_seats(tx: Tx, server_id: str) -> dict[str, int]:
    """Return the sessions of a server's seats, by worker."""
    rows = await tx.one("list_own_seats", server_id)
    return {cast("str", row[0]): cast("int", row[1]) for row in rows}


async def touch_driver(tx: Tx, server_id: str, *, now_ms: int) -> bool:
    """Write that a server drives its seats; return whether it has a row."""
    return bool(await tx.one("touch_driver", server_id, now_ms))


async def give_seats(tx: Tx, server_id: str, worker_ids: Iterable[str]) -> int:
    """Give seats of a server back; return how many it still had."""
    rows = [(each, server_id) for each in sorted(worker_ids)]
    return len(await tx.each("give_seats", rows))


async def leave_seats(tx: Tx, server_id: str) -> None:
    """Write that a server drives nothing any more, and give back all its seats."""
    await give_seats(tx, server_id, await list_own_seats(tx, server_id))
    await tx.one("leave_seats", server_id)


async def note_seats(tx: Tx, server_id: str, notes: Iterable[SeatNote]) -> None:
    """Write what drivers saw, as far as the seats are still those of their server."""
    rows = [
        (
            each.worker_id,
            server_id,
            each.call_at_ms,
            each.call_ms,
            each.call_error,
            each.unconfirmed_count,
            each.kill_count,
        )
        for each in sorted(notes, key=operator.attrgetter("worker_id"))
    ]
    await tx.each("note_seats", rows)


async def insert_seats(tx: Tx, seats: Sequence[Seat]) -> None:
    """Write the seats of new workers."""
    rows = [
        (each.worker_id, each.namespace, each.mode.value, each.address, each.caller)
        for each in seats
    ]
    await tx.each("insert_seats", rows)


async def take_seats(tx: Tx, seats: Sequence[Seat]) -> None:
    """Write who drives seats now, and in which session."""
    await tx.each(
        "take_seats",
        [(each.worker_id, each.server_id, each.session_no, each.taken_at_ms) for each in seats],
    )


async def delete_seats(tx: Tx, worker_ids: Iterable[str]) -> None:
    """Delete the seats of workers that are deleted."""
    await tx.each("delete_seats", [(each,) for each in sorted(worker_ids)])


async def close_seats(tx: Tx, seats: Sequence[Seat]) -> None:
    """Close the seats of workers that go offline; what their drivers saw is kept."""
    await tx.each("close_seats", [(each.worker_id,) for each in seats])


class SeatRows(RowSet[str, Seat]):
    """Seats by worker, whose lock protects them. ``removed`` are those of workers that end."""

    __slots__ = ()

    table = Table(
        operator.attrgetter("worker_id"),
        load=read_seats,
        insert=insert_seats,
        update=take_seats,
        delete=close_seats,
        is_locked=False,
    )

    def close(self, worker: Worker) -> None:
        """Close the seat of a worker that ends; one that was never driven has none."""
        if worker.mode in DRIVEN:
            seat = Seat(worker.id, worker.namespace, worker.mode, "", "", is_open=False)
            # One that was made in this batch is not stored yet.
            if self.new.pop(worker.id, None) is None:
                self.removed[worker.id] = seat
