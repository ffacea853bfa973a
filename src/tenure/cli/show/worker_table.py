"""Workers as people read them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from tenure.cli.parameter import PageOptions
from tenure.cli.show import listing
from tenure.cli.show.output import console
from tenure.cli.show.table import Column, lines
from tenure.cli.show.task_table import labels_text
from tenure.cli.show.text import age_text, duration_text, parse_instant_ms, short_id
from tenure.cli.show.view import ShownWorker

if TYPE_CHECKING:
    from tenure.cli.client.invocation import Invocation
    from tenure.cli.show.listing import Listing
    from tenure.cli.show.top_look import TopWorker

_WATCH_SECONDS: Final = 1.0


def columns(now_ms: int) -> Sequence[Column[ShownWorker]]:
    """Return the columns of a list of workers."""
    return (
        Column(
            "WORKER",
            lambda worker: worker.worker_id,
            short=lambda worker: short_id(worker.worker_id),
        ),
        Column("NAME", name_text, rank=1, is_text=True),
        Column("QUEUE", lambda worker: worker.queue, rank=5, is_text=True),
        Column("STATUS", lambda worker: worker.status),
        Column("HEALTH", lambda worker: worker.health or worker.end_reason, rank=4),
        Column("RUNNING", lambda worker: f"{worker.held_count}/{worker.max_concurrent}", rank=2),
        Column("LEASE", lease_text, rank=7),
        Column("STOP", stop_text, rank=3),
        Column("VERSION", lambda worker: worker.version, rank=8, is_text=True),
        Column("AGE", lambda worker: age_text(worker.registered_at, now_ms), rank=6),
        Column("ADDRESS", lambda worker: worker.address, rank=9, is_text=True),
    )


def name_text(worker: ShownWorker | TopWorker) -> str:
    """Return the name of a worker; one without a name is known by its host and process."""
    place = f"{worker.hostname or ''}:{worker.pid}" if worker.pid else worker.hostname
    return worker.name or place or ""


def lease_text(worker: ShownWorker) -> str:
    """Return how much of a lease is left."""
    if worker.lease_left_ms is None:
        return ""
    return duration_text(worker.lease_left_ms) if worker.lease_left_ms > 0 else "over"


def stop_text(worker: ShownWorker) -> str:
    """Return whether a worker may be stopped now, or what is in the way."""
    if worker.may_stop:
        return "yes"
    return "drain first" if worker.status == "ONLINE" else f"{worker.held_count} running"


def facts(worker: ShownWorker, now_ms: int) -> Iterator[tuple[str, object]]:
    """Return what is known of a worker, the most important first."""
    yield "worker", worker.worker_id
    yield "name", worker.name
    yield "status", worker.status
    yield "health", worker.health
    yield "reason", worker.end_reason
    yield "stop", stop_text(worker)
    yield "running", f"{worker.held_count} of at most {worker.max_concurrent} tasks"
    yield "lease left", lease_text(worker)
    if worker.lease is not None:
        yield "lease", duration_text(worker.lease.duration_ms)
        yield "heartbeat", f"{age_text(worker.lease.last_heartbeat_at, now_ms)} ago"
    if worker.drain_deadline_at is not None:
        left_ms = parse_instant_ms(worker.drain_deadline_at) - now_ms
        left = f"in {duration_text(left_ms)}" if left_ms > 0 else "over"
        yield "drain deadline", f"{worker.drain_deadline_at} ({left})"
    yield "queue", worker.queue
    yield "namespace", worker.namespace
    yield "types", ", ".join(worker.types)
    yield "mode", worker.mode
    yield from _seat(worker, now_ms)
    yield "host", worker.hostname
    yield "pid", worker.pid
    yield "version", worker.version
    yield "labels", labels_text(worker.labels)
    yield "completed", worker.total_completed
    yield "failed", worker.total_failed
    yield "registered", f"{worker.registered_at} ({age_text(worker.registered_at, now_ms)} ago)"
    if worker.ended_at is not None:
        yield "ended", f"{worker.ended_at} ({age_text(worker.ended_at, now_ms)} ago)"


def _seat(worker: ShownWorker, now_ms: int) -> Iterator[tuple[str, object]]:
    """Return how the calls to a served worker go."""
    seat = worker.seat
    if seat is None:
        return
    yield "address", worker.address
    yield "driver", seat.server_id or "no server"
    if seat.last_call_at is not None:
        ago = age_text(seat.last_call_at, now_ms)
        yield "last call", f"{ago} ago, {duration_text(seat.call_duration_ms)}"
    yield "call error", seat.call_error
    if seat.failure_count:
        yield "failed calls", f"{seat.failure_count} in a row"
    yield "unconfirmed", f"{seat.unconfirmed_count} tasks"
    yield "to stop", f"{seat.kill_count} attempts"


def watch(call: Invocation, shown: Listing[ShownWorker], options: PageOptions) -> None:
    """Show a list again and again until the user interrupts it."""
    if call.output.is_table and sys.stdout.isatty():
        _watch_live(call, shown, options)
        return
    known: dict[str, ShownWorker] = {}
    while True:
        items = list(listing.read(shown, options))
        changed = [item for item in items if known.get(item.worker_id) != lasting(item)]
        known = {item.worker_id: lasting(item) for item in items}
        if changed and call.output.is_table:
            call.output.table(columns(call.client.now_ms()), items)
        elif changed:
            for item in changed:
                call.output.write(item)
        sys.stdout.flush()
        time.sleep(_WATCH_SECONDS)


def lasting(worker: ShownWorker) -> ShownWorker:
    """Return what is worth telling about a worker: each heartbeat changes the rest."""
    return msgspec.structs.replace(
        worker, lease=None, lease_left_ms=None, total_completed=0, total_failed=0, seat=None
    )


def _watch_live(call: Invocation, shown: Listing[ShownWorker], options: PageOptions) -> None:
    from rich.console import Group
    from rich.live import Live

    screen = console(sys.stdout)
    with Live(console=screen, auto_refresh=False, screen=False) as live:
        while True:
            items = list(listing.read(shown, options))
            made = lines(columns(call.client.now_ms()), items, screen.width)
            live.update(Group(*made), refresh=True)
            time.sleep(_WATCH_SECONDS)
