"""The root of the commands: what there is, loaded when it is asked for, and how it ends."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, NoReturn

import click

from tenure.cli.exit_code import ExitCode
from tenure.cli.help import CommandGroup


class Place(NamedTuple):
    """Where a command lives, and its line in the help."""

    module: str
    name: str
    summary: str


PLACES: Final[dict[str, Place]] = {
    "dev": Place("tenure.cli.dev.dev", "dev", "Run a server and a worker for development."),
    "server": Place("tenure.cli.command.server", "server", "Start a Tenure server."),
    "worker": Place(
        "tenure.cli.command.worker_process",
        "worker",
        "Run the activities and workflows of a module.",
    ),
    "tasks": Place("tenure.cli.command.task", "tasks", "Enqueue, watch and change tasks."),
    "run": Place("tenure.cli.command.run", "run", "Start a run of a workflow."),
    "runs": Place("tenure.cli.command.run", "runs", "List, show, signal and end runs."),
    "schedules": Place(
        "tenure.cli.command.schedule", "schedules", "Start tasks and runs at planned times."
    ),
    "workers": Place("tenure.cli.command.worker", "workers", "List, drain and evict workers."),
    "top": Place("tenure.cli.command.top", "top", "Watch queues and workers live."),
    "queues": Place("tenure.cli.command.queue", "queues", "List, pause and limit queues."),
    "endpoints": Place("tenure.cli.command.endpoint", "endpoints", "Push tasks to HTTP workers."),
    "namespaces": Place(
        "tenure.cli.command.namespace", "namespaces", "List, create and disable namespaces."
    ),
    "keys": Place("tenure.cli.command.key", "keys", "Create, list and revoke API keys."),
    "audit": Place("tenure.cli.command.audit", "audit", "List administrative actions."),
    "doctor": Place("tenure.cli.command.doctor", "doctor", "Check the server and say what to fix."),
    "db": Place("tenure.cli.command.db", "db", "Migrate and check the database."),
    "completion": Place(
        "tenure.cli.command.completion", "completion", "Print a shell completion script."
    ),
    "version": Place("tenure.cli.command.version", "version", "Print the version."),
}
_HELP: Final = """Durable tasks and workflows.

\b
Start a server, enqueue a task and watch it:
  tenure server --store sqlite:///tenure.db
  tenure tasks enqueue resize --input '{"width": 80}' --wait
  tenure workers ls --watch

\b
Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 conflict or wrong
state, 5 server or store unreachable, 6 not allowed, 7 doctor found problems,
124 wait timed out, 130 interrupted.
"""


class Root(CommandGroup):
    """The group of all commands; it imports the module of the one that is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help."""
        del ctx
        return list(PLACES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        del ctx
        place = PLACES.get(cmd_name)
        if place is None:
            return None
        command = getattr(importlib.import_module(place.module), place.name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list from the table, without importing anything."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.summary) for name, place in PLACES.items()])

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; a reader that has seen enough ends it quietly."""
        try:
            result = super().invoke(ctx)
            # What is buffered must be written while a closed pipe can still be handled.
            sys.stdout.flush()
        except BrokenPipeError:
            # The interpreter flushes once more at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return None
        return result

    def main(  # type: ignore[override]  # it always ends the process, so it has no other mode
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        **extra: Any,  # noqa: ANN401 (click's own)
    ) -> NoReturn:
        """Run, and end the process with the right exit code."""
        del prog_name
        extra.pop("standalone_mode", None)
        try:
            code = super().main(args, "tenure", standalone_mode=False, **extra)
        except click.exceptions.Abort:
            code = ExitCode.INTERRUPTED
        except click.ClickException as error:
            error.show()
            code = error.exit_code
        sys.exit(code if isinstance(code, int) else ExitCode.OK)


def _show_version(ctx: click.Context, param: click.Parameter, value: object) -> None:
    del param
    if value and not ctx.resilient_parsing:
        ctx.invoke(importlib.import_module("tenure.cli.command.version").version)
        ctx.exit()


tenure = Root(
    name="tenure",
    help=_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_version,
            help="Print the version and exit.",
        )
    ],
)


def main() -> NoReturn:
    """Run the command of this process."""
    tenure.main()
