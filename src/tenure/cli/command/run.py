"""``tenure run`` and ``tenure runs``."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final, Unpack

import click

from tenure.cli import parameter, suggestion
from tenure.cli.client.invocation import Invocation, with_server
from tenure.cli.client.request import RunSelection, StartOptions
from tenure.cli.command import run_check, run_explain
from tenure.cli.help import CommandGroup, HelpCommand
from tenure.cli.parameter import check_wait, examples, label_option, option, wait_options

if TYPE_CHECKING:
    from tenure.cli.show.run_view import ShownRun

_RUN_ID: Final = click.argument("run_id", metavar="ID", shell_complete=suggestion.run_ids)


@click.command(
    cls=HelpCommand,
    short_help="Start a run of a workflow.",
    epilog=examples(
        "tenure run checkout '{\"order\": 42}'",
        "tenure run checkout @order.json --wait --timeout 1m",
        "tenure run checkout @order.json --id order-42 --on-finished reject",
        "ID=$(tenure run report --queue reports --key report-2030-01 --delay 5m)",
    ),
)
@click.argument("type_name", metavar="TYPE")
@click.argument("input", metavar="[JSON|@FILE|-]", required=False, type=parameter.json_payload)
@option(
    "--queue", default="default", shell_complete=suggestion.queues, help="The queue of the run."
)
@click.option("--priority", type=click.IntRange(0, 9), help="0 (first) to 9 (last). [default: 5]")
@click.option(
    "--delay",
    "delay_ms",
    metavar="DURATION",
    type=parameter.delay_ms,
    help="Start after this time.",
)
@click.option(
    "--at",
    "at_ms",
    metavar="INSTANT",
    type=parameter.instant_ms,
    help="Start at this time, such as 2030-01-31T09:00:00Z.",
)
@click.option(
    "--schedule-to-close",
    "schedule_to_close_ms",
    metavar="DURATION",
    type=parameter.duration_ms,
    help="Longest time of the whole run. [default: no limit]",
)
@option(
    "--max-attempts",
    type=click.IntRange(0, 2**31 - 1),
    default=1,
    help="How often it begins, with an empty journal, if its code fails. 0 is no limit.",
)
@click.option("--key", default="", help="Idempotency key: the same key again gives the same run.")
@click.option(
    "--id", "external_id", metavar="TEXT", default="", help="An id of yours, for external:TEXT."
)
@option(
    "--on-live",
    type=click.Choice(["return", "reject"]),
    default="return",
    help="If a live run has this id.",
)
@option(
    "--on-finished",
    type=click.Choice(["allow", "return", "reject"]),
    default="allow",
    help="If only finished runs have this id.",
)
@label_option("A label of the run. Repeatable.")
@wait_options
@with_server
def run(
    call: Invocation,
    *,
    type_name: str,
    is_waited: bool,
    timeout_ms: int | None,
    **options: Unpack[StartOptions],
) -> None:
    """Start a run of a workflow TYPE with an input, and print its id.

    With --wait the command waits for the run, tells of each step that it has done, and prints its
    output. The exit code is then 1 if the run failed or was cancelled, and 124 after --timeout.
    """
    check_wait(is_waited=is_waited, timeout_ms=timeout_ms)
    if options["delay_ms"] is not None and options["at_ms"]:
        raise click.UsageError("Give --delay or --at, not both.")
    started = call.client.runs.start(type_name, options)
    if is_waited:
        _wait(call, started.run_id, timeout_ms)
    elif call.output.is_table:
        call.output.say(started.run_id)
        if not started.is_new:
            name = "key" if options["key"] else "id"
            call.output.note(f"A run with this {name} exists already; nothing was added.")
        if started.content_differs:
            call.output.note("It has another type, queue or input than what was given now.")
        call.output.note(f"Look at it: tenure runs show {started.run_id}")
    else:
        call.output.write(started)


def _wait(
    call: Invocation, run_id: str, timeout_ms: int | None, *, is_cancel_wanted: bool = False
) -> None:
    """Follow one run to its end, show it, and end with its exit code."""
    from tenure.cli.client import wait
    from tenure.cli.client.run_progress import RunProgress

    run = call.client.runs.get_run(run_id)
    # What a run has done before somebody cancels it is no news.
    after = (run.entry_count or 0) if is_cancel_wanted else 0
    progress = RunProgress(call.client.runs, run, after=after)
    (task,) = wait.for_tasks(call, [run.run_id], timeout_ms, progress)
    if call.output.is_table:
        wait.show_result(call.output, task)
    else:
        call.output.write(call.client.runs.get_run(run.run_id))
    good = {"SUCCEEDED", "CANCELLED"} if is_cancel_wanted else {"SUCCEEDED"}
    if task.state not in good or wait.is_output_lost(task):
        raise click.exceptions.Exit(1)


class RunListOptions(parameter.PageOptions):
    """Which runs of a list are wanted, and which part of it."""

    queue: str
    type_name: str
    status: str | None
    is_parked: bool
    labels: tuple[tuple[str, str], ...]
    created_from_ms: int | None
    created_to_ms: int | None
    external_id: str


@click.group(cls=CommandGroup, short_help="List, show, signal and end runs.")
def runs() -> None:
    """List, show, signal and end runs of workflows. Start one with tenure run.

    The ID of a run may also be external:TEXT, with the id that was given to tenure run --id.
    """


@runs.command(
    "ls",
    short_help="List runs, newest first.",
    epilog=examples(
        "tenure runs ls --parked",
        "tenure runs ls --type checkout --label shop=7 --created-from 2030-01-31T00:00:00Z",
        "tenure runs ls --all -o jsonl | jq -r .runId",
    ),
)
@click.option(
    "--queue", default="", shell_complete=suggestion.queues, help="Only runs of this queue."
)
@click.option("--type", "type_name", default="", help="Only runs of this type.")
@click.option(
    "--id",
    "external_id",
    metavar="PREFIX",
    default="",
    help="Only runs whose id, given with tenure run --id, begins so.",
)
@click.option(
    "--status",
    type=click.Choice(parameter.RUN_STATUSES, case_sensitive=False),
    help="Only runs of this status.",
)
@click.option(
    "--parked", "is_parked", is_flag=True, help="Only runs that are parked: --status PARKED."
)
@label_option("Only runs with this label. Repeatable: all have to match.")
@click.option(
    "--created-from",
    "created_from_ms",
    metavar="INSTANT",
    type=parameter.instant_ms,
    help="Only runs that were created then or later.",
)
@click.option(
    "--created-to",
    "created_to_ms",
    metavar="INSTANT",
    type=parameter.instant_ms,
    help="Only runs that were created before.",
)
@parameter.page_options
@with_server
def list_(call: Invocation, **options: Unpack[RunListOptions]) -> None:
    """List runs, newest first."""
    from tenure.cli.show import listing, run_table

    if options["is_parked"] and options["status"]:
        raise click.UsageError("Give --status or --parked, not both.")
    status = "PARKED" if options["is_parked"] else options["status"] or ""

    def pages(token: str, limit: int) -> tuple[list[ShownRun], str]:
        query = RunSelection(
            queue=options["queue"],
            type=options["type_name"],
            status=status,
            labels=dict(options["labels"]),
            created_from_ms=options["created_from_ms"],
            created_to_ms=options["created_to_ms"],
            external_id=options["external_id"],
            limit=limit,
            page_token=token,
        )
        return call.client.runs.list_runs(query)

    shown = listing.Listing("runs", "tenure runs ls", pages)
    listing.show(call.output, shown, options, lambda: run_table.columns(call.client.now_ms()))


@runs.command(
    short_help="Show one run with its journal.",
    epilog=examples(
        "tenure runs show 01981c9e-7d1c-7c43-9a3e-0d2b6f2f9f10",
        "tenure runs show ID --all -o json | jq .entries",
    ),
)
@_RUN_ID
@option("--limit", type=click.IntRange(0), default=500, help="Number of entries to show.")
@click.option("--all", "is_all", is_flag=True, help="Show all entries.")
@with_server
def show(call: Invocation, *, run_id: str, limit: int, is_all: bool) -> None:
    """Show a run: its status, what it waits for, its payloads and its journal.

    The journal is a tree: the entries of each branch of the code stand together, with the time
    that each step and each branch took. What has not ended stands behind them: where the run waits.
    """
    from tenure.cli.show import run_table

    found = call.client.runs.get_run(run_id)
    journal = call.client.runs.read_journal(run_id)
    entries = list(journal if is_all else itertools.islice(journal, limit))
    children = call.client.runs.read_open(found.run_id) if found.open_child_count else []
    if not call.output.is_table:
        call.output.write(run_table.WithEntries.of(found, entries, children))
        return
    why = call.client.tasks.explain_task(found.run_id).first if found.is_unheld else ""
    now_ms = call.client.now_ms()
    call.output.facts(run_table.facts(found, now_ms, why))
    lines = run_table.tree(entries, run_table.open_calls(found, children[:limit], now_ms))
    if lines:
        call.output.say("")
        call.output.table(run_table.entry_columns(), lines)
    left = (found.entry_count or 0) - len(entries)
    if left > 0 and not is_all:
        call.output.note(f"There are {left} more entries. All: --all.")
    if why:
        call.output.note(f"What to do: tenure tasks explain {found.run_id}")


@runs.command(
    short_help="Follow the journal of a run.",
    epilog=examples(
        "tenure runs tail external:order-42",
        "tenure runs tail ID --limit 0",
        "tenure runs tail ID --all -o jsonl | jq -r .key",
    ),
)
@_RUN_ID
@option(
    "--limit",
    type=click.IntRange(0),
    default=20,
    help="With how many of the entries that are there it begins.",
)
@click.option("--all", "is_all", is_flag=True, help="Begin with the first entry.")
@with_server
def tail(call: Invocation, *, run_id: str, limit: int, is_all: bool) -> None:
    """Print a line for each entry of the journal of a run, until the run has ended or Ctrl-C.

    What the run waits for is told beside. The exit code is 1 if the run failed or was cancelled.
    """
    if call.form == "json":
        raise click.UsageError("Use -o jsonl, which prints one entry per line.")
    from tenure.cli.command.run_tail import RunTail

    run = call.client.runs.get_run(run_id)
    after = 0 if is_all else max((run.entry_count or 0) - limit, 0)
    if RunTail(call).follow(run, after=after).status != "COMPLETED":
        raise click.exceptions.Exit(1)


@runs.command(
    short_help="Ask a run to end.",
    epilog=examples("tenure runs cancel ID --reason 'order withdrawn' --wait"),
)
@_RUN_ID
@click.option("--reason", default="", help="The reason, for the code and the history of the run.")
@wait_options
@with_server
def cancel(
    call: Invocation, *, run_id: str, reason: str, is_waited: bool, timeout_ms: int | None
) -> None:
    """Cancel a run.

    A run that never began is cancelled at once. The code of others is told, and may clean up for
    as long as it needs. With --wait the exit code is 0 if the run is cancelled or has completed,
    else 1.
    """
    check_wait(is_waited=is_waited, timeout_ms=timeout_ms)
    status = call.client.runs.cancel_run(run_id, reason)
    if is_waited:
        _wait(call, run_id, timeout_ms, is_cancel_wanted=True)
        return
    _show_status(call, run_id, status)
    if status != "CANCELLED":
        call.output.note("Its code has been told to end, and may clean up.")


def _show_status(call: Invocation, run_id: str, status: str) -> None:
    from tenure.cli.show.text import became_text

    if call.output.is_table:
        call.output.say(f"Run {run_id} {became_text(status)}.")
    else:
        call.output.write({"runId": run_id, "status": status})


@runs.command(
    short_help="End a run without asking its code.", epilog=examples("tenure runs terminate ID")
)
@_RUN_ID
@with_server
def terminate(call: Invocation, *, run_id: str) -> None:
    """End a run at once as FAILED.

    Its code gets no time to clean up, and a step that it has begun may still go on. Prefer cancel.
    """
    _show_status(call, run_id, call.client.runs.terminate_run(run_id))


@runs.command(
    short_help="Resume a paused run, and try parked ones.",
    epilog=examples("tenure runs resume ID", "tenure runs resume --parked --type checkout"),
)
@click.argument("run_id", metavar="[ID]", required=False, shell_complete=suggestion.run_ids)
@click.option("--parked", "is_parked", is_flag=True, help="Try all parked runs.")
@click.option("--type", "type_name", default="", help="With --parked: only runs of this type.")
@with_server
def resume(call: Invocation, *, run_id: str | None, is_parked: bool, type_name: str) -> None:
    """Let a paused run go on, and try a parked one at once; with --parked, all that are parked."""
    if (run_id is not None) == is_parked:
        raise click.UsageError("Give the ID of one run, or --parked for all that are parked.")
    if run_id is not None:
        if type_name:
            raise click.UsageError("--type needs --parked.")
        _show_status(call, run_id, call.client.runs.resume_run(run_id))
        return
    resumed = call.client.runs.resume_parked(type_name)
    if call.output.is_table:
        call.output.say(f"{resumed:,} parked run{'s are' if resumed != 1 else ' is'} tried again.")
    else:
        call.output.write({"resumed": resumed})


@runs.command(
    short_help="Make a new run from a finished one.",
    epilog=examples(
        "tenure runs retry ID --from-step last",
        "tenure runs retry external:order-42 --from-step charge --wait",
    ),
)
@_RUN_ID
@click.option(
    "--from-step",
    metavar="KEY|last",
    default="",
    help="Keep what was recorded before this call; last is the failure that ended the run.",
)
@click.option(
    "--from-position",
    metavar="N",
    type=click.IntRange(1),
    help="Keep the entries of its journal before this position.",
)
@wait_options
@with_server
def retry(
    call: Invocation,
    *,
    run_id: str,
    from_step: str,
    from_position: int | None,
    is_waited: bool,
    timeout_ms: int | None,
) -> None:
    """Make a new run with the request of a finished one, and print its id.

    Without an option it begins from the start. The positions and keys of calls are those of
    tenure runs show. Steps that it does again have the idempotency keys that they had.
    """
    check_wait(is_waited=is_waited, timeout_ms=timeout_ms)
    if from_step and from_position:
        raise click.UsageError("Give --from-step or --from-position, not both.")
    made = call.client.runs.retry_run(run_id, from_step, from_position or 0)
    if is_waited:
        _wait(call, made.run_id, timeout_ms)
    elif call.output.is_table:
        call.output.say(made.run_id)
        call.output.note(f"It keeps {made.kept_entries} entries of run {made.retry_of}.")
    else:
        call.output.write(made)


@runs.command(
    "signal",
    short_help="Send a signal to a run.",
    epilog=examples(
        "tenure runs signal ID approve '{\"isOk\": true}'",
        "tenure runs signal ID approve @answer.json --id approval-42",
    ),
)
@_RUN_ID
@click.argument("name", metavar="NAME")
@click.argument("payload", metavar="[JSON|@FILE|-]", required=False, type=parameter.json_payload)
@click.option(
    "--id", "signal_id", default="", help="The id of the signal: sent again, it counts once."
)
@with_server
def signal_(
    call: Invocation, *, run_id: str, name: str, payload: bytes | None, signal_id: str
) -> None:
    """Send the signal NAME to a run, with a payload or without."""
    is_new = call.client.runs.signal_run(run_id, name, payload, signal_id)
    if not call.output.is_table:
        call.output.write({"runId": run_id, "isNew": is_new})
        return
    call.output.say(f"Run {run_id} has the signal {name}.")
    if not is_new:
        call.output.note("A signal with this id was there already; nothing was added.")


runs.add_command(run_explain.explain)
runs.add_command(run_check.check)
runs.add_command(run_check.lint)
runs.add_command(run_check.export)
