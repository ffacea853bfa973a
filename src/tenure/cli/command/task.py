"""``tenure tasks``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

import click

from tenure.cli import parameter, suggestion
from tenure.cli.client.invocation import Invocation, with_server
from tenure.cli.client.request import CompletionRequest, EnqueueOptions, TaskSelection
from tenure.cli.help import CommandGroup
from tenure.cli.parameter import check_wait, examples, label_option, option, wait_options

if TYPE_CHECKING:
    from tenure.cli.show.view import ShownTask

_TASK_ID: Final = click.argument("task_id", metavar="ID", shell_complete=suggestion.task_ids)


@click.group(cls=CommandGroup, short_help="Enqueue, watch and change tasks.")
def tasks() -> None:
    """Enqueue, watch and change tasks."""


@tasks.command(
    short_help="Enqueue a task.",
    epilog=examples(
        "tenure tasks enqueue resize --input '{\"width\": 80}'",
        "tenure tasks enqueue report --input @report.json --delay 5m --key report-2030-01",
        "tenure tasks enqueue resize --input '{\"width\": 80}' --wait --timeout 1m",
        "ID=$(tenure tasks enqueue resize --queue images --max-attempts 3)",
    ),
)
@click.argument("type_name", metavar="TYPE")
@option(
    "--queue", default="default", shell_complete=suggestion.queues, help="The queue of the task."
)
@click.option(
    "--input",
    metavar="JSON|@FILE|-",
    type=parameter.json_payload,
    help="The input: JSON, @file, or - for stdin.",
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
@parameter.timeout_options
@click.option(
    "--max-attempts",
    type=click.IntRange(0, 2**31 - 1),
    default=0,
    help="Highest number of attempts. 0, the default, is no limit.",
)
@click.option("--key", default="", help="Idempotency key: the same key again gives the same task.")
@label_option("A label of the task. Repeatable.")
@wait_options
@with_server
def enqueue(
    call: Invocation,
    *,
    type_name: str,
    is_waited: bool,
    timeout_ms: int | None,
    **options: Unpack[EnqueueOptions],
) -> None:
    """Enqueue a task of a TYPE and print its id.

    With --wait the command waits for the task and prints its output. The exit code is then 1 if
    the task failed or was cancelled, and 124 after --timeout.
    """
    check_wait(is_waited=is_waited, timeout_ms=timeout_ms)
    if options["delay_ms"] is not None and options["at_ms"]:
        raise click.UsageError("Give --delay or --at, not both.")
    if not options["start_to_close_ms"] and not options["schedule_to_close_ms"]:
        options["start_to_close_ms"] = parameter.START_TO_CLOSE_MS
    task = call.client.tasks.enqueue(type_name, options)
    if is_waited:
        _wait(call, task.task_id, timeout_ms)
    elif call.output.is_table:
        call.output.say(task.task_id)
        if not task.is_new:
            call.output.note("A task with this key exists already; nothing was added.")
        call.output.note(f"Wait for it: tenure tasks wait {task.task_id}")
    else:
        call.output.write(task)


def _wait(
    call: Invocation, task_id: str, timeout_ms: int | None, *, is_cancel_wanted: bool = False
) -> None:
    """Follow one task to its end, show it, and end with its exit code."""
    from tenure.cli.client import wait

    (task,) = wait.for_tasks(call, [task_id], timeout_ms)
    wait.show_result(call.output, task)
    good = {"SUCCEEDED", "CANCELLED"} if is_cancel_wanted else {"SUCCEEDED"}
    if task.state not in good or wait.is_output_lost(task):
        raise click.exceptions.Exit(1)


class _Chosen(TypedDict):
    """Which tasks are wanted."""

    queue: str
    type_name: str
    states: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]
    error_type: str
    failure_reason: str
    since_ms: int | None
    before_ms: int | None


@tasks.command(
    "ls",
    short_help="List tasks, newest first.",
    epilog=examples(
        "tenure tasks ls --queue images --state FAILED",
        "tenure tasks ls --type 'charge_*' --label order=8841 --since 2h",
        "tenure tasks ls --all -o jsonl | jq -r .taskId",
    ),
)
@click.option(
    "--queue", default="", shell_complete=suggestion.queues, help="Only tasks of this queue."
)
@click.option(
    "--type", "type_name", default="", help="Only tasks of this type; charge_* is a beginning."
)
@click.option(
    "--state",
    "states",
    type=click.Choice(parameter.TASK_STATES, case_sensitive=False),
    multiple=True,
    help="Only tasks in this state. Repeatable.",
)
@label_option("Only tasks with this label. Repeatable; all must match.")
@click.option("--error", "error_type", default="", help="Only tasks whose last error has it.")
@click.option(
    "--reason", "failure_reason", default="", help="Only tasks that failed for this reason."
)
@click.option(
    "--since",
    "since_ms",
    metavar="DURATION",
    type=parameter.duration_ms,
    help="Only tasks that were created in this time.",
)
@click.option(
    "--before",
    "before_ms",
    metavar="DURATION",
    type=parameter.duration_ms,
    help="Only tasks that were created longer ago than this.",
)
@parameter.page_options
@with_server
def list_(
    call: Invocation, *, limit: int, page_token: str, is_all: bool, **chosen: Unpack[_Chosen]
) -> None:
    """List tasks, newest first.

    Labels, errors, reasons, times and the beginning of a type are looked for in each row. A page
    may then be empty although there are more: --all reads on.
    """
    from tenure.cli.show import listing, task_table

    now_ms = call.client.now_ms()
    since_ms, before_ms = chosen["since_ms"], chosen["before_ms"]
    selection = TaskSelection(
        queue=chosen["queue"],
        type=chosen["type_name"],
        states=chosen["states"],
        labels=dict(chosen["labels"]),
        error_type=chosen["error_type"],
        failure_reason=chosen["failure_reason"].upper(),
        created_after_ms=0 if since_ms is None else now_ms - since_ms,
        created_before_ms=0 if before_ms is None else now_ms - before_ms,
    )

    def pages(token: str, limit: int) -> tuple[list[ShownTask], str]:
        return call.client.tasks.list_tasks(replace(selection, limit=limit, page_token=token))

    shown = listing.Listing("tasks", "tenure tasks ls", pages)
    page = parameter.PageOptions(limit=limit, page_token=page_token, is_all=is_all)
    listing.show(call.output, shown, page, lambda: task_table.columns(call.client.now_ms()))


@tasks.command(
    short_help="Follow the changes of tasks.",
    epilog=examples(
        "tenure tasks tail",
        "tenure tasks tail --queue images --state FAILED",
        "tenure tasks tail -o jsonl | jq -r .taskId",
    ),
)
@click.option(
    "--queue", default="", shell_complete=suggestion.queues, help="Only tasks of this queue."
)
@click.option("--type", "type_name", default="", help="Only tasks of this type.")
@click.option(
    "--state",
    type=click.Choice(parameter.TASK_STATES, case_sensitive=False),
    help="Only changes to this state.",
)
@parameter.http_option
@with_server
def tail(call: Invocation, *, queue: str, type_name: str, state: str | None, http: str) -> None:
    """Print a line for each change of a task from now on, until Ctrl-C.

    NOTE has the progress of a running task. New progress is a line too, unless --state is given. A
    task that changes several times within a moment may be printed once. After a lost connection
    each task that has changed is printed once, if it is among the newest 500.
    """
    from tenure.cli.client import event_stream
    from tenure.cli.command import tail as following

    if call.form == "json":
        raise click.UsageError("Use -o jsonl, which prints one change per line.")
    chosen = TaskSelection(queue=queue, type=type_name, state=state or "")
    following.follow(call, event_stream.HttpEdge(call, http), chosen)


@tasks.command(
    short_help="Show one task with its attempts.",
    epilog=examples("tenure tasks show 01981c9e-7d1c-7c43-9a3e-0d2b6f2f9f10"),
)
@_TASK_ID
@with_server
def show(call: Invocation, *, task_id: str) -> None:
    """Show a task: its state, payloads and attempts."""
    from tenure.cli.show import task_table

    task = call.client.tasks.get_task(task_id)
    attempts = call.client.tasks.list_attempts(task_id)
    if not call.output.is_table:
        call.output.write(task_table.WithAttempts.of(task, attempts))
        return
    now_ms = call.client.now_ms()
    found = call.client.tasks.explain_task(task_id) if task.is_waiting else None
    call.output.facts(task_table.facts(task, now_ms, found.first if found else ""))
    if attempts:
        call.output.say("")
        call.output.table(task_table.attempt_columns(now_ms), attempts)
    if found is not None:
        call.output.note(f"What to do: {found.command}")


@tasks.command(
    short_help="Say why a task is not running now.",
    epilog=examples("tenure tasks explain 01981c9e-7d1c-7c43-9a3e-0d2b6f2f9f10"),
)
@_TASK_ID
@with_server
def explain(call: Invocation, *, task_id: str) -> None:
    """Say why a task is not running now, and what to do about it.

    The first reason is what keeps it from running now. The others come next.
    """
    from tenure.cli.show import explain as explanation

    explanation.show(call.output, call.client.tasks.explain_task(task_id))


@tasks.command(
    short_help="List the attempts of a task.",
    epilog=examples("tenure tasks attempts 01981c9e-7d1c-7c43-9a3e-0d2b6f2f9f10 -o json"),
)
@_TASK_ID
@with_server
def attempts(call: Invocation, *, task_id: str) -> None:
    """List the attempts of a task: the worker, the time and the outcome of each."""
    from tenure.cli.show import task_table

    found = call.client.tasks.list_attempts(task_id)
    if call.output.form == "jsonl":
        for attempt in found:
            call.output.write(attempt)
    elif call.output.form == "json":
        call.output.write({"attempts": found})
    else:
        call.output.table(task_table.attempt_columns(call.client.now_ms()), found)


@tasks.command(
    short_help="Ask a task to stop.",
    epilog=examples("tenure tasks cancel ID --reason 'wrong input' --wait"),
)
@_TASK_ID
@click.option(
    "--reason", default="", help="The reason, for the worker and the history of the task."
)
@wait_options
@with_server
def cancel(
    call: Invocation, *, task_id: str, reason: str, is_waited: bool, timeout_ms: int | None
) -> None:
    """Cancel a task.

    A pending task is cancelled at once. A running task is told to stop, and has --cancel-grace to
    clean up. With --wait the exit code is 0 if the task is cancelled or has succeeded, else 1.
    """
    check_wait(is_waited=is_waited, timeout_ms=timeout_ms)
    state = call.client.tasks.cancel_task(task_id, reason)
    if is_waited:
        _wait(call, task_id, timeout_ms, is_cancel_wanted=True)
    else:
        _show_state(call, task_id, state)


def _show_state(call: Invocation, task_id: str, state: str) -> None:
    from tenure.cli.show.text import became_text

    if call.output.is_table:
        call.output.say(f"Task {task_id} {became_text(state)}.")
    else:
        call.output.write({"taskId": task_id, "state": state})


@tasks.command(short_help="Pause a task.", epilog=examples("tenure tasks pause ID"))
@_TASK_ID
@with_server
def pause(call: Invocation, *, task_id: str) -> None:
    """Pause a task until it is resumed. A running task is paused when its attempt ends."""
    state = call.client.tasks.pause_task(task_id)
    _show_state(call, task_id, state)
    if state != "PAUSED":
        call.output.note("It will be paused when its current attempt ends.")


@tasks.command(short_help="Resume a paused task.", epilog=examples("tenure tasks resume ID"))
@_TASK_ID
@with_server
def resume(call: Invocation, *, task_id: str) -> None:
    """Resume a paused task."""
    _show_state(call, task_id, call.client.tasks.resume_task(task_id))


@tasks.command(
    short_help="End a task without asking its worker.", epilog=examples("tenure tasks terminate ID")
)
@_TASK_ID
@with_server
def terminate(call: Invocation, *, task_id: str) -> None:
    """End a task at once as FAILED.

    The worker is told to stop, but gets no time to clean up. Prefer cancel.
    """
    _show_state(call, task_id, call.client.tasks.terminate_task(task_id))


@tasks.command(
    short_help="Run an ended task again as a new task.",
    epilog=examples("tenure tasks retry ID", "tenure tasks retry ID --wait --timeout 5m"),
)
@_TASK_ID
@wait_options
@with_server
def retry(call: Invocation, *, task_id: str, is_waited: bool, timeout_ms: int | None) -> None:
    """Enqueue an ended task again as a new task, and print the new id."""
    check_wait(is_waited=is_waited, timeout_ms=timeout_ms)
    new_id = call.client.tasks.retry_task(task_id)
    if is_waited:
        _wait(call, new_id, timeout_ms)
    elif call.output.is_table:
        call.output.say(new_id)
        call.output.note(f"Wait for it: tenure tasks wait {new_id}")
    else:
        call.output.write({"taskId": new_id, "retryOf": task_id})


@tasks.command(
    "wait",
    short_help="Wait for tasks to end.",
    epilog=examples("tenure tasks wait ID --timeout 5m", "tenure tasks wait ID1 ID2 ID3 -o jsonl"),
)
@click.argument(
    "task_ids", metavar="ID...", nargs=-1, required=True, shell_complete=suggestion.task_ids
)
@click.option(
    "--timeout",
    "timeout_ms",
    metavar="DURATION",
    type=parameter.duration_ms,
    help="Stop waiting after this time, with exit code 124.",
)
@with_server
def wait_(call: Invocation, *, task_ids: tuple[str, ...], timeout_ms: int | None) -> None:
    """Wait until all tasks have ended, show their progress, and print the results.

    The exit code is 0 if all succeeded and 1 if one failed or was cancelled.
    """
    from tenure.cli.client import wait

    ended = wait.for_tasks(call, list(dict.fromkeys(task_ids)), timeout_ms)
    wait.show_results(call, ended)
    if any(task.state != "SUCCEEDED" or wait.is_output_lost(task) for task in ended):
        raise click.exceptions.Exit(1)


@tasks.command(
    short_help="Complete a task from outside its worker.",
    epilog=examples(
        "tenure tasks complete ID --output '{\"approved\": true}'",
        "tenure tasks complete ID --error 'rejected by the customer' --final",
    ),
)
@_TASK_ID
@click.option(
    "--output",
    metavar="JSON|@FILE|-",
    type=parameter.json_payload,
    help="The task succeeded with this output.",
)
@click.option(
    "--error", "error_message", metavar="MESSAGE", help="The task failed with this message."
)
@click.option("--error-type", default="", help="The type of the error.")
@click.option("--final", "is_final", is_flag=True, help="Do not retry after this error.")
@click.option(
    "--attempt", type=click.IntRange(1), help="Only if this attempt is live. [default: any]"
)
@with_server
def complete(call: Invocation, *, task_id: str, **completion: Unpack[CompletionRequest]) -> None:
    """Complete a task whose activity has left its result to somebody else."""
    is_failed = completion["error_message"] is not None
    if is_failed == (completion["output"] is not None):
        raise click.UsageError("Give --output or --error.")
    if (completion["error_type"] or completion["is_final"]) and not is_failed:
        raise click.UsageError("--error-type and --final need --error.")
    _show_state(call, task_id, call.client.tasks.complete_task(task_id, completion))
