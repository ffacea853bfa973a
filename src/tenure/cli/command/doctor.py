"""``tenure doctor``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import click

from tenure.cli.client.invocation import Invocation, with_whole_server
from tenure.cli.exit_code import ExitCode
from tenure.cli.help import HelpCommand
from tenure.cli.parameter import examples

if TYPE_CHECKING:
    from tenure.cli.show.diagnosis_view import ShownDiagnosis, ShownFinding

_STYLES: Final = {"problem": "red", "warning": "yellow", "ok": "green"}
_WIDTH: Final = max(map(len, _STYLES))


@click.command(
    cls=HelpCommand,
    short_help="Check the server and say what to fix.",
    epilog=examples(
        "tenure doctor",
        "tenure doctor --all",
        "tenure doctor -o json | jq '.findings[] | select(.level == \"problem\")'",
    ),
)
@click.option(
    "--namespace",
    default="",
    metavar="NAME",
    help="Only workers and tasks of this namespace. [default: all that the key may read]",
)
@click.option("--all", "is_all", is_flag=True, help="Also show the checks that passed.")
@with_whole_server
def doctor(call: Invocation, *, namespace: str, is_all: bool) -> None:
    """Check the server, its database, its workers and this machine, and say what to fix.

    It checks clocks, the speed, durability and free space of the database, migrations, versions,
    late leases, timers and schedules, and tasks that no worker can run. The exit code is 7 if there
    is a problem. A warning is no problem yet, but may become one.
    """
    found = call.client.diagnose(namespace)
    if call.output.form == "jsonl":
        for finding in found.findings:
            call.output.write(finding)
    elif call.output.form == "json":
        call.output.write(found)
    else:
        _show(call, found, is_all=is_all)
    if any(each.level == "problem" for each in found.findings):
        raise click.exceptions.Exit(ExitCode.PROBLEMS)


def _show(call: Invocation, found: ShownDiagnosis, *, is_all: bool) -> None:
    from tenure.cli.show.text import one_line

    for each in found.findings:
        if is_all or each.level != "ok":
            level = click.style(each.level.upper().ljust(_WIDTH), fg=_STYLES[each.level])
            click.echo(f"{level} {each.check}: {one_line(f'{each.message} {each.advice}')}")
    levels = {each.level for each in found.findings}
    tell = call.output.say if levels == {"ok"} else call.output.note
    tell(_summary(found.findings))


def _summary(findings: Iterable[ShownFinding]) -> str:
    levels = [each.level for each in findings]
    problems, warnings = levels.count("problem"), levels.count("warning")
    if not problems and not warnings:
        return f"No problems: {len(levels)} checks passed."
    return (
        f"{problems} problem{'s' * (problems != 1)}, {warnings} warning{'s' * (warnings != 1)}, "
        f"{len(levels) - problems - warnings} checks passed."
    )
