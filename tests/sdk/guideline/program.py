"""A worker as a program: ``python -m tests.sdk.guideline.program TARGET``.

The first attempt of each activity gets to a place where it waits to be killed; a later one runs to
its end. What they do to the world is in an ``OutsideWorld``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from dataclasses import dataclass

from tenure import Worker, activity
from tests.sdk.guideline.outside_world import OutsideWorld


@dataclass
class Checkpoint:
    """All that is needed to go on: no lookup elsewhere."""

    next_row: int
    total: int


@activity(start_to_close="1h", heartbeat_timeout="5s")
def import_rows(folder: str, count: int, die_at: int) -> int:
    """Add up rows; the checkpoint is written after the row, so a row may come twice."""
    outside, start = OutsideWorld(folder), Checkpoint(0, 0)
    _begin(outside, "import_rows")
    if activity.has_heartbeat_details():
        start = activity.heartbeat_details(Checkpoint)
    total = start.total
    for row in range(start.next_row, count):
        outside.upsert_row(row)
        if row == die_at:
            _wait_to_be_killed()
        total += row
        activity.heartbeat(Checkpoint(row + 1, total))
        # Progress is sent within a second, and the checkpoint with it.
        activity.progress(100 * row / count, f"row {row}")
    return total


def show_progress(items: int) -> int:
    """Go through items and say so after each."""
    for item in range(1, items + 1):
        activity.progress(100 * item / items, f"item {item} of {items}")
    return items


@activity(start_to_close="1m", executor="process")
def count(items: int) -> int:
    """Do it in a child process."""
    return show_progress(items)


@activity(start_to_close="1h")
def send_invoice(folder: str, invoice: str) -> str:
    """Check, then execute: the other side can be asked whether it was done."""
    outside = OutsideWorld(folder)
    _begin(outside, "send_invoice")
    if not outside.has("invoice", invoice):
        outside.add("invoice", invoice)
    _wait_to_be_killed()
    return invoice


@activity(start_to_close="1h")
def save_balance(folder: str, account: int) -> int:
    """Upsert: writing the same state again changes nothing."""
    outside = OutsideWorld(folder)
    _begin(outside, "save_balance")
    outside.upsert_row(account)
    _wait_to_be_killed()
    return len(outside.rows())


@activity(start_to_close="1h")
def charge(folder: str) -> str:
    """Idempotency key: the service is told the same key in each attempt."""
    outside, key = OutsideWorld(folder), activity.info().idempotency_key
    _begin(outside, "charge")
    outside.add("charge", key)
    _wait_to_be_killed()
    return key


@activity(start_to_close="1h")
def book_trip(folder: str) -> list[str]:
    """Outcome recording: each part that is done is recorded, and a later attempt does the rest."""
    outside, key = OutsideWorld(folder), activity.info().idempotency_key
    _begin(outside, "book_trip")
    done = []
    for part in ("flight", "hotel"):
        if not outside.has("outcome", f"{key}:{part}"):
            outside.add("booking", f"{key}:{part}:{activity.info().attempt}")
            outside.add("outcome", f"{key}:{part}")
            done.append(part)
        if part == "flight":
            _wait_to_be_killed()
    return done


def _begin(outside: OutsideWorld, name: str) -> None:
    outside.note_run(name, activity.info().attempt, os.getpid())


def _wait_to_be_killed() -> None:
    while activity.info().attempt == 1:
        activity.heartbeat()
        time.sleep(0.02)


ACTIVITIES = [import_rows, send_invoice, save_balance, charge, book_trip]


if __name__ == "__main__":
    logging.basicConfig(level="INFO", format="%(message)s")
    asyncio.run(Worker(sys.argv[1], activities=ACTIVITIES).run())
