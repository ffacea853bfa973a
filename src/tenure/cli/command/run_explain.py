"""``tenure runs explain``."""

from __future__ import annotations

import click

from tenure.cli import suggestion
from tenure.cli.client.invocation import Invocation, with_server
from tenure.cli.help import HelpCommand
from tenure.cli.parameter import examples


@click.command(
    cls=HelpCommand,
    short_help="Say why a run does not go on now.",
    epilog=examples("tenure runs explain ID", "tenure runs explain external:order-42"),
)
@click.argument("run_id", metavar="ID", shell_complete=suggestion.run_ids)
@with_server
def explain(call: Invocation, *, run_id: str) -> None:
    """Say why a run does not go on now, and what to do about it.

    A run that waits for tasks and runs that it has made is shown with the first of them, and why
    these are not done: down to the cause.
    """
    from tenure.cli.show import explain as explanation

    explanation.show(call.output, call.client.runs.explain_run(run_id))
