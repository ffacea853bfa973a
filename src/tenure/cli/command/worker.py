"""``tenure workers``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

import click

from tenure.cli import parameter, suggestion
from tenure.cli.client.invocation import Invocation, with_server
from tenure.cli.client.request import DrainChoice, StopChoice, WorkerQuery
from tenure.cli.exit_code import ExitCode
from tenure.cli.help import CommandGroup
from tenure.cli.parameter import check_wait, examples, label_option

if TYPE_CHECKING:
    from tenure.cli.show.view import ShownWorker

_WORKER_ID: Final = click.argument("worker_id", metavar="ID", shell_complete=suggestion.worker_ids)


class _Filter(TypedDict):
    """Which workers are wanted."""

    queue: str
    status: str | None
    labels: tuple[tuple[str, str], ...]
    version: str


@click.group(cls=CommandGroup, short_help="List, drain and evict workers.")
def workers() -> None:
    """List workers with their health and load. Drain or evict them."""


@workers.command(
    "ls",
    short_help="List workers, newest first.",
    epilog=examples(
        "tenure workers ls",
        "tenure workers ls --status DRAINING --label zone=a",
        "tenure workers ls --queue images --watch",
    ),
)
@click.option(
    "--queue", default="", shell_complete=suggestion.queues, help="Only workers of this queue."
)
@click.option(
    "--status",
    type=click.Choice(parameter.WORKER_STATUSES, case_sensitive=False),
    help="Only workers with this status.",
)
@label_option("Only workers with this label. Repeatable; all must match.")
@click.option("--version", default="", help="Only workers of this version.")
@parameter.page_options
@click.option("--watch", "is_watched", is_flag=True, help="Keep the list up to date until Ctrl-C.")
@with_server
def list_(
    call: Invocation,
    *,
    limit: int,
    page_token: str,
    is_all: bool,
    is_watched: bool,
    **chosen: Unpack[_Filter],
) -> None:
    """List workers with their status, health and load.

    RUNNING is the number of tasks of a worker and its limit. LEASE is the time until the worker
    counts as lost, unless it sends a heartbeat. STOP is "yes" if the worker can be stopped without
    interrupting a task. Otherwise STOP says what to do first.
    """
    from tenure.cli.show import listing, worker_table

    def pages(token: str, limit: int) -> tuple[list[ShownWorker], str]:
        query = WorkerQuery(
            queue=chosen["queue"],
            status=chosen["status"] or "",
            labels=dict(chosen["labels"]),
            version=chosen["version"],
            limit=limit,
            page_token=token,
        )
        return call.client.workers.list_workers(query)

    shown = listing.Listing("workers", "tenure workers ls", pages)
    page = parameter.PageOptions(limit=limit, page_token=page_token, is_all=is_all)
    if is_watched:
        if call.output.form == "json":
            raise click.UsageError("--watch needs -o table or -o jsonl.")
        worker_table.watch(call, shown, page)
    else:
        listing.show(call.output, shown, page, lambda: worker_table.columns(call.client.now_ms()))


@workers.command(
    short_help="Show one worker.",
    epilog=examples("tenure workers show 01981c9e-7d1c-7c43-9a3e-0d2b6f2f9f10"),
)
@_WORKER_ID
@with_server
def show(call: Invocation, *, worker_id: str) -> None:
    """Show a worker: its lease, health, load and settings. ID may be a part of the id."""
    worker_id = call.client.workers.find_id(worker_id)
    _show(call, call.client.workers.get_worker(worker_id))


def _show(call: Invocation, worker: ShownWorker) -> None:
    from tenure.cli.show import worker_table

    if call.output.is_table:
        call.output.facts(worker_table.facts(worker, call.client.now_ms()))
    else:
        call.output.write(worker)


@workers.command(
    short_help="Let workers finish their tasks and stop.",
    epilog=examples(
        "tenure workers drain 01981c9e-7d1c-7c43-9a3e-0d2b6f2f9f10 --wait",
        "tenure workers drain --version 1.4.2 --deadline 10m --wait --timeout 15m",
        "tenure workers drain --label zone=a",
    ),
)
@click.argument("worker_id", metavar="[ID]", required=False, shell_complete=suggestion.worker_ids)
@label_option("Drain workers with this label. Repeatable; all must match.")
@click.option("--version", default="", help="Drain workers of this version.")
@click.option(
    "--deadline",
    "deadline_ms",
    metavar="DURATION",
    type=parameter.duration_ms,
    help="After this time unfinished tasks go back to the queue. [default: 5m]",
)
@parameter.wait_options
@with_server
def drain(
    call: Invocation, *, is_waited: bool, timeout_ms: int | None, **choice: Unpack[DrainChoice]
) -> None:
    """Drain one worker, or all workers that match labels and version.

    A draining worker gets no new tasks. It finishes its running tasks and stops. With --wait the
    command waits until all of them have stopped.
    """
    from tenure.cli.client import drain as draining

    check_wait(is_waited=is_waited, timeout_ms=timeout_ms)
    if (choice["worker_id"] is not None) == bool(choice["labels"] or choice["version"]):
        raise click.UsageError("Give the ID of one worker, or --label or --version for several.")
    if choice["worker_id"] is not None:
        choice["worker_id"] = call.client.workers.find_id(choice["worker_id"])
    ids = call.client.workers.drain(choice)
    if is_waited:
        draining.wait_until_offline(call, ids, timeout_ms)
    else:
        draining.show_drained(call, ids)


@workers.command(
    "stop-check",
    short_help="Say whether workers can be stopped.",
    epilog=examples(
        "tenure workers stop-check 01981c9e-7d1c-7c43-9a3e-0d2b6f2f9f10",
        "tenure workers stop-check --version 1.4.2 --wait --timeout 10m",
    ),
)
@click.argument("worker_id", metavar="[ID]", required=False, shell_complete=suggestion.worker_ids)
@label_option("Check workers with this label. Repeatable; all must match.")
@click.option("--version", default="", help="Check workers of this version.")
@parameter.wait_options
@with_server
def stop_check(
    call: Invocation, *, is_waited: bool, timeout_ms: int | None, **choice: Unpack[StopChoice]
) -> None:
    """Say whether a stop of one worker, or of all that match, interrupts nothing.

    It is safe when each worker is drained or offline and no live attempt names it: after the commit
    of the drain nothing was handed out. The exit code is 0 if it is safe, else 1. With --wait the
    command waits until it is safe.
    """
    from tenure.cli.client.stop_wait import wait_until_safe
    from tenure.cli.show import stop_table

    check_wait(is_waited=is_waited, timeout_ms=timeout_ms)
    if (choice["worker_id"] is not None) == bool(choice["labels"] or choice["version"]):
        raise click.UsageError("Give the ID of one worker, or --label or --version for several.")
    if choice["worker_id"] is not None:
        choice["worker_id"] = call.client.workers.find_id(choice["worker_id"])
    if is_waited:
        found = wait_until_safe(call, choice, timeout_ms)
    else:
        found = call.client.workers.check_stop(choice)
    if call.output.is_table:
        call.output.facts(stop_table.facts(found, call.client.now_ms()))
    else:
        call.output.write(found)
    if not found.is_safe:
        sys.exit(ExitCode.FAILED)


@workers.command(
    short_help="Take a worker offline at once.",
    epilog=examples("tenure workers evict ID", "tenure workers evict ID --yes"),
)
@_WORKER_ID
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask for confirmation.")
@with_server
def evict(call: Invocation, *, worker_id: str, is_sure: bool) -> None:
    """Take a worker offline at once.

    Its tasks start again on other workers, and may run twice for a short time. Its results are
    refused from now on. Use drain for a healthy worker.
    """
    worker_id = call.client.workers.find_id(worker_id)
    if not is_sure:
        if not sys.stdin.isatty():
            raise click.UsageError("Evict interrupts running tasks. Add --yes to confirm.")
        worker = call.client.workers.get_worker(worker_id)
        held = f"Its {worker.held_count} running tasks will start again on other workers."
        click.confirm(f"Evict worker {worker_id}? {held}", abort=True, err=True)
    _show(call, call.client.workers.evict_worker(worker_id))
