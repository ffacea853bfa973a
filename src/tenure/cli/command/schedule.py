"""``tenure schedules``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Unpack

import click

from tenure.cli import parameter, suggestion
from tenure.cli.client.invocation import Invocation, with_server
from tenure.cli.client.request import RuleOptions, ScheduleOptions, ScheduleSelection
from tenure.cli.help import CommandGroup
from tenure.cli.parameter import examples, label_option, option

if TYPE_CHECKING:
    from tenure.cli.show.schedule_view import ShownFire, ShownPlan, ShownSchedule

_SCHEDULE_ID: Final = click.argument(
    "schedule_id", metavar="ID", shell_complete=suggestion.schedule_ids
)
_NEW_RULE: Final = (
    "sec min hour dom month dow [year], or five fields without sec, or @daily and the like."
)


@click.group(cls=CommandGroup, short_help="Start tasks and runs at planned times.")
def schedules() -> None:
    """Start tasks and runs at planned times: by a cron rule in a time zone, or at an interval."""


def _rule_options(function: parameter.F) -> parameter.F:
    for each in (
        click.option(
            "--ends-at",
            "ends_at_ms",
            metavar="INSTANT",
            type=parameter.instant_ms,
            help="Fire nothing after this time.",
        ),
        click.option(
            "--starts-at",
            "starts_at_ms",
            metavar="INSTANT",
            type=parameter.instant_ms,
            help="Fire nothing before this time, such as 2030-01-31T09:00:00Z.",
        ),
        option("--zone", default="UTC", help="An IANA time zone, such as Europe/Berlin."),
        click.option(
            "--offset",
            "offset_ms",
            metavar="DURATION",
            type=parameter.delay_ms,
            default="0s",
            help="Move an interval, which is aligned to 1970.",
        ),
        click.option(
            "--every",
            "every_ms",
            metavar="DURATION",
            type=parameter.duration_ms,
            help="Fire at this interval instead of by a rule.",
        ),
        click.option("--rule", default="", help=_NEW_RULE),
    ):
        function = each(function)
    return function


def _target_options(function: parameter.F) -> parameter.F:
    for each in (
        click.option(
            "--on-live",
            type=click.Choice(["return", "reject"]),
            help="If a live run has --id: it counts as started, or the fire is skipped.",
        ),
        click.option(
            "--id", "external_id", metavar="TEXT", default="", help="An id of yours for the run."
        ),
        label_option("A label of the task. Repeatable."),
        click.option(
            "--max-attempts",
            type=click.IntRange(0, 2**31 - 1),
            help="Highest number of attempts, 0 for no limit. [default: 0, with --workflow 1]",
        ),
        parameter.timeout_options,
        click.option(
            "--priority", type=click.IntRange(0, 9), help="0 (first) to 9 (last). [default: 5]"
        ),
        option(
            "--queue",
            default="default",
            shell_complete=suggestion.queues,
            help="The queue of the task.",
        ),
        click.option(
            "--workflow", "is_workflow", is_flag=True, help="TYPE is a workflow: start runs of it."
        ),
    ):
        function = each(function)
    return function


def _lateness_options(function: parameter.F) -> parameter.F:
    for each in (
        click.option("--note", default="", help="A note for people."),
        option(
            "--pause-after-failures",
            type=click.IntRange(0),
            default=0,
            help="Pause after so many failures in a row. 0 is never.",
        ),
        click.option(
            "--jitter",
            "jitter_ms",
            metavar="DURATION",
            type=parameter.delay_ms,
            default="0s",
            help="Start each task up to so much later, by chance.",
        ),
        click.option(
            "--catchup-window",
            "catchup_window_ms",
            metavar="DURATION",
            type=parameter.duration_ms,
            help="Missed times that are older do not fire. [default: no limit]",
        ),
        option(
            "--max-catchup",
            type=click.IntRange(0),
            default=100,
            help="How many missed times fire afterwards, the newest.",
        ),
        option(
            "--overlap",
            type=click.Choice(["allow", "skip", "buffer_one", "cancel_previous"]),
            default="allow",
            help="If the task of the last fire has not ended.",
        ),
    ):
        function = each(function)
    return function


@schedules.command(
    short_help="Create or replace a schedule.",
    epilog=examples(
        "tenure schedules put nightly report '{\"days\": 1}' --rule '0 2 * * *'",
        "tenure schedules put nightly report --rule '0 2 * * *' --zone Europe/Berlin",
        "tenure schedules put sync sync_orders --every 5m --overlap skip --max-catchup 1",
        "tenure schedules put close close_month --workflow --rule '0 6 L * *'",
    ),
)
@click.argument("schedule_id", metavar="ID")
@click.argument("type_name", metavar="TYPE")
@click.argument("input", metavar="[JSON|@FILE|-]", required=False, type=parameter.json_payload)
@_rule_options
@_target_options
@_lateness_options
@with_server
def put(
    call: Invocation, *, schedule_id: str, type_name: str, **options: Unpack[ScheduleOptions]
) -> None:
    """Create the schedule ID, or replace it: it enqueues tasks of a TYPE with an input.

    A new rule counts from now on. A paused schedule stays paused. In a rule, Sunday is 0 or 7; if
    day of month and day of week are both restricted, a day that matches either one fires.
    """
    _check_rule(options["rule"], options["every_ms"])
    _check_target(options)
    stored = call.client.schedules.put(schedule_id, type_name, options)
    if not call.output.is_table:
        call.output.write(stored)
        return
    done = "created" if stored.is_new else "changed" if stored.is_changed else "unchanged"
    call.output.say(f"Schedule {schedule_id} is {done}.")
    _note_next(call, stored)


def _check_rule(rule: str, every_ms: int | None) -> None:
    if bool(rule) == (every_ms is not None):
        raise click.UsageError("Give --rule or --every, and not both.")


def _check_target(options: ScheduleOptions) -> None:
    if options["is_workflow"]:
        of_tasks = ("start_to_close", "schedule_to_start", "heartbeat_timeout", "cancel_grace")
        for name in of_tasks:
            if options.get(f"{name}_ms") is not None:
                raise click.UsageError(
                    f"A run has no --{name.replace('_', '-')}. Use --schedule-to-close."
                )
    elif options["external_id"] or options["on_live"]:
        raise click.UsageError("--id and --on-live need --workflow.")
    elif not options["start_to_close_ms"] and not options["schedule_to_close_ms"]:
        options["start_to_close_ms"] = parameter.START_TO_CLOSE_MS


def _note_next(call: Invocation, schedule: ShownSchedule) -> None:
    if schedule.state == "PAUSED":
        call.output.note(f"It is paused. Resume it: tenure schedules resume {schedule.schedule_id}")
    elif schedule.next_fire_at:
        call.output.note(f"It fires next at {schedule.next_fire_at}.")


@schedules.command(
    "ls",
    short_help="List schedules.",
    epilog=examples(
        "tenure schedules ls --paused",
        "tenure schedules ls --type report -o json",
        "tenure schedules ls --all -o jsonl | jq -r .scheduleId",
    ),
)
@click.option("--type", "type_name", default="", help="Only those that start this type.")
@click.option(
    "--paused/--not-paused", "is_paused", default=None, help="Only those that are paused, or not."
)
@parameter.page_options
@with_server
def list_(
    call: Invocation,
    *,
    type_name: str,
    is_paused: bool | None,
    **page: Unpack[parameter.PageOptions],
) -> None:
    """List schedules by their ids, paused ones too, with the time of the next fire."""
    from tenure.cli.show import listing, schedule_table

    def pages(token: str, limit: int) -> tuple[list[ShownSchedule], str]:
        query = ScheduleSelection(
            type=type_name, is_paused=is_paused, limit=limit, page_token=token
        )
        return call.client.schedules.list_schedules(query)

    shown = listing.Listing("schedules", "tenure schedules ls", pages)
    listing.show(call.output, shown, page, lambda: schedule_table.columns(call.client.now_ms()))


@schedules.command(
    short_help="Show one schedule.",
    epilog=examples("tenure schedules show nightly", "tenure schedules show nightly -o json"),
)
@_SCHEDULE_ID
@with_server
def show(call: Invocation, *, schedule_id: str) -> None:
    """Show a schedule: when it fires, what it starts, and how far it is."""
    _show(call, call.client.schedules.get_schedule(schedule_id))


def _show(call: Invocation, schedule: ShownSchedule) -> None:
    from tenure.cli.show import schedule_table

    if call.output.is_table:
        call.output.facts(schedule_table.facts(schedule, call.client.now_ms()))
    else:
        call.output.write(schedule)


@schedules.command(
    "next",
    short_help="Show the next times of a schedule or a rule.",
    epilog=examples(
        "tenure schedules next nightly --count 3",
        "tenure schedules next --rule '30 2 * * *' --zone Europe/Berlin",
        "tenure schedules next --every 6h --offset 30m -o jsonl",
    ),
)
@click.argument(
    "schedule_id", metavar="[ID]", required=False, shell_complete=suggestion.schedule_ids
)
@_rule_options
@option("--count", type=click.IntRange(1, 100), default=10, help="How many times to show.")
@with_server
def next_(
    call: Invocation, *, schedule_id: str | None, count: int, **options: Unpack[RuleOptions]
) -> None:
    """Show when a schedule fires next, in UTC and on the clocks of its zone.

    With --rule or --every in place of ID it is for a rule that is not stored.
    """
    is_rule = bool(options["rule"]) or options["every_ms"] is not None
    if is_rule == (schedule_id is not None):
        raise click.UsageError("Give the ID of a schedule, or --rule or --every.")
    if schedule_id is not None:
        _show_plan(call, call.client.schedules.next_fires(schedule_id, count))
        return
    _check_rule(options["rule"], options["every_ms"])
    _show_plan(call, call.client.schedules.preview(options, count))


def _show_plan(call: Invocation, plan: ShownPlan) -> None:
    from tenure.cli.show import schedule_table

    if call.output.form == "jsonl":
        for each in plan.fires:
            call.output.write(each)
        return
    if not call.output.is_table:
        call.output.write(plan)
        return
    if plan.fires:
        call.output.table(schedule_table.plan_columns(call.client.now_ms()), plan.fires)
    else:
        call.output.note("It never fires again.")
    for note in plan.notes:
        call.output.note(note)


@schedules.command(
    short_help="List what a schedule has fired and skipped.",
    epilog=examples(
        "tenure schedules fires nightly",
        "tenure schedules fires nightly --all -o jsonl | jq 'select(.reason)'",
    ),
)
@_SCHEDULE_ID
@parameter.page_options
@with_server
def fires(call: Invocation, *, schedule_id: str, **page: Unpack[parameter.PageOptions]) -> None:
    """List what a schedule has fired and skipped, newest first.

    OUTCOME is how the task or the run has ended; STARTED has not. LATE is how much later than
    planned it fired. Times that were skipped one after the other stand in one line.
    """
    from tenure.cli.show import listing, schedule_table

    def pages(token: str, limit: int) -> tuple[list[ShownFire], str]:
        return call.client.schedules.list_fires(schedule_id, token, limit)

    shown = listing.Listing("fires", f"tenure schedules fires {schedule_id}", pages)
    listing.show(call.output, shown, page, schedule_table.fire_columns)


@schedules.command(
    short_help="Stop a schedule from firing.",
    epilog=examples("tenure schedules pause nightly --note 'until the move is done'"),
)
@_SCHEDULE_ID
@click.option("--note", default="", help="Why, for people.")
@with_server
def pause(call: Invocation, *, schedule_id: str, note: str) -> None:
    """Pause a schedule: it fires nothing more. What it has started goes on."""
    _say(call, call.client.schedules.pause(schedule_id, note), "is paused")


@schedules.command(
    short_help="Let a paused schedule fire again.",
    epilog=examples("tenure schedules resume nightly", "tenure schedules resume nightly --skip"),
)
@_SCHEDULE_ID
@click.option("--skip", "is_skip", is_flag=True, help="Skip the times of the pause.")
@with_server
def resume(call: Invocation, *, schedule_id: str, is_skip: bool) -> None:
    """Resume a paused schedule, or let a broken one try again.

    The times of the pause count as missed: the newest fire now, as --max-catchup says. With --skip
    they are recorded as skipped.
    """
    resumed = call.client.schedules.resume(schedule_id, "SKIP" if is_skip else "CATCH_UP")
    _say(call, resumed, "goes on")
    _note_next(call, resumed)


def _say(call: Invocation, schedule: ShownSchedule, text: str) -> None:
    if call.output.is_table:
        call.output.say(f"Schedule {schedule.schedule_id} {text}.")
    else:
        call.output.write(schedule)


@schedules.command(
    short_help="Fire a schedule now.",
    epilog=examples(
        "tenure schedules trigger nightly",
        "ID=$(tenure schedules trigger nightly --trigger-id ticket-42)",
    ),
)
@_SCHEDULE_ID
@click.option("--trigger-id", metavar="TEXT", default="", help="The same again fires nothing more.")
@with_server
def trigger(call: Invocation, *, schedule_id: str, trigger_id: str) -> None:
    """Fire a schedule now, also a paused one, and print the id of the task or the run."""
    triggered = call.client.schedules.trigger(schedule_id, trigger_id)
    if not call.output.is_table:
        call.output.write(triggered)
        return
    call.output.say(triggered.fire.task_id or "")
    if not triggered.is_new:
        call.output.note("This trigger id has fired already; nothing was started.")
    call.output.note(f"See how it ends: tenure schedules fires {schedule_id}")


@schedules.command(
    short_help="Fire the times of a period in the past.",
    epilog=examples(
        "tenure schedules backfill nightly --from 2030-05-01T00:00:00Z --to 2030-06-01T00:00:00Z"
    ),
)
@_SCHEDULE_ID
@click.option(
    "--from",
    "from_ms",
    metavar="INSTANT",
    type=parameter.instant_ms,
    required=True,
    help="Times after this one fire.",
)
@click.option(
    "--to",
    "to_ms",
    metavar="INSTANT",
    type=parameter.instant_ms,
    required=True,
    help="The last time that may fire.",
)
@with_server
def backfill(call: Invocation, *, schedule_id: str, from_ms: int, to_ms: int) -> None:
    """Fire the times of a schedule in a period of the past, at most 1,000.

    Times that fired before do not fire again, so the command may be repeated.
    """
    done = call.client.schedules.backfill(schedule_id, from_ms, to_ms)
    if not call.output.is_table:
        call.output.write(done)
        return
    count, known = len(done.started), len(done.known_keys)
    before = f" {known:,} had fired before." if known else ""
    call.output.say(f"{count:,} {'time' if count == 1 else 'times'} fired.{before}")


@schedules.command(short_help="Remove a schedule.", epilog=examples("tenure schedules rm nightly"))
@_SCHEDULE_ID
@with_server
def rm(call: Invocation, *, schedule_id: str) -> None:
    """Remove a schedule. Tasks and runs that it has started go on."""
    _say(call, call.client.schedules.delete(schedule_id), "is removed")
