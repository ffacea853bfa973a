"""``tenure queues``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import click
from typing_extensions import Unpack

from tenure.cli import parameter, suggestion
from tenure.cli.client.invocation import Invocation, with_server
from tenure.cli.help import CommandGroup
from tenure.cli.parameter import examples

if TYPE_CHECKING:
    from tenure.cli.show.table import Column
    from tenure.cli.show.view import ShownPerMinute, ShownQueue

# The counts, the most important first.
_RANKS: Final = ("PENDING", "RUNNING", "DISPATCHED", "PAUSED", "CANCELLING", "WAITING")
_NAME: Final = click.argument("name", metavar="NAME", shell_complete=suggestion.queues)


@click.group(cls=CommandGroup, short_help="List, pause and limit queues.")
def queues() -> None:
    """List queues with their live tasks. Pause or limit them."""


def _columns() -> Sequence[Column[ShownQueue]]:
    from tenure.cli.show.table import Column

    def count(state: str) -> Column[ShownQueue]:
        return Column(
            state,
            lambda queue: _count_text(queue.counts.get(state, 0), is_exact=queue.is_count_exact),
            rank=_RANKS.index(state) + 1,
        )

    return (
        Column("QUEUE", lambda queue: queue.name, is_text=True),
        Column("STATE", lambda queue: queue.state),
        Column("LIMIT", lambda queue: queue.concurrency_max or parameter.NO_LIMIT, rank=3),
        *map(count, parameter.LIVE_STATES),
        Column("OLDEST", _oldest_text, rank=4),
        Column("WAIT", _wait_text, rank=5),
        Column("DONE/MIN", lambda queue: _done(queue.per_minute), rank=6),
    )


def _oldest_text(queue: ShownQueue) -> str:
    """Return how long the first task has waited that could be handed out."""
    from tenure.cli.show.text import duration_text

    return duration_text(queue.oldest_waiting_ms) if queue.oldest_waiting_ms else ""


def _wait_text(queue: ShownQueue) -> str:
    from tenure.cli.show.text import duration_text

    return duration_text(queue.wait_ms.p95) if queue.wait_ms else ""


def _done(minute: ShownPerMinute) -> int:
    return minute.succeeded + minute.failed + minute.cancelled


def _count_text(count: int, *, is_exact: bool) -> str:
    """Return a count; with a plus where counting stopped."""
    return str(count) if is_exact or not count else f"{count}+"


@queues.command("ls", short_help="List queues.", epilog=examples("tenure queues ls --all -o json"))
@parameter.page_options
@with_server
def list_(call: Invocation, **page: Unpack[parameter.PageOptions]) -> None:
    """List queues that have settings or live tasks, with the number of tasks in each state.

    STATE is PAUSED if no tasks are handed out. Queues with more than 1,000 tasks have the numbers
    of the last sample, some seconds old. OLDEST is how long the first claimable task has waited;
    WAIT is the time within which 95 of 100 tasks of the last minute were started.
    """
    from tenure.cli.show import listing

    shown = listing.Listing("queues", "tenure queues ls", call.client.queues.list_queues)
    listing.show(call.output, shown, page, _columns)


@queues.command(short_help="Show one queue.", epilog=examples("tenure queues show images"))
@_NAME
@with_server
def show(call: Invocation, *, name: str) -> None:
    """Show a queue: its settings, and its live tasks by type and state."""
    _show(call, call.client.queues.get_queue(name))


def _show(call: Invocation, queue: ShownQueue) -> None:
    if not call.output.is_table:
        call.output.write(queue)
        return
    call.output.facts(_facts(queue))


def _facts(queue: ShownQueue) -> Iterator[tuple[str, object]]:
    yield "queue", queue.name
    yield "state", queue.state
    yield "limit", queue.concurrency_max or parameter.NO_LIMIT
    yield "oldest waits", _oldest_text(queue)
    yield "95 of 100 wait", _wait_text(queue)
    if queue.worker_count is not None:
        yield "workers", f"{queue.worker_count} with {queue.slots} slots, {queue.held} in use"
    minute = queue.per_minute
    yield "last minute", f"{minute.enqueued} enqueued, {_done(minute)} ended, {minute.lost} lost"
    yield "all types", _counts_text(queue.counts, is_exact=queue.is_count_exact)
    for name, counts in queue.types.items():
        yield name, _counts_text(counts, is_exact=queue.is_type_count_exact)


def _counts_text(counts: dict[str, int], *, is_exact: bool) -> str:
    shown = [
        f"{_count_text(counts[state], is_exact=is_exact)} {state.lower()}"
        for state in parameter.LIVE_STATES
        if counts.get(state)
    ]
    return ", ".join(shown) or "no live tasks"


@queues.command(
    short_help="Stop handing out tasks of a queue.", epilog=examples("tenure queues pause images")
)
@_NAME
@with_server
def pause(call: Invocation, *, name: str) -> None:
    """Stop handing out tasks of a queue. Running tasks continue."""
    _show(call, call.client.queues.set_queue(name, is_paused=True))


@queues.command(
    short_help="Hand out tasks of a paused queue again.",
    epilog=examples("tenure queues resume images"),
)
@_NAME
@with_server
def resume(call: Invocation, *, name: str) -> None:
    """Hand out tasks of a paused queue again."""
    _show(call, call.client.queues.set_queue(name, is_paused=False))


@queues.command(
    short_help="Limit how many tasks run at once.",
    epilog=examples("tenure queues limit images 10", "tenure queues limit images none"),
)
@_NAME
@click.argument("concurrency_max", metavar="N|none", type=parameter.concurrency)
@with_server
def limit(call: Invocation, *, name: str, concurrency_max: int) -> None:
    """Let at most N tasks of a queue run at once. `none` removes the limit."""
    _show(call, call.client.queues.set_queue(name, concurrency_max=concurrency_max))
