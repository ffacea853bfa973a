"""``tenure db``: what is done to the database itself, with or without a server."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import click

from tenure.cli.client.invocation import output_option
from tenure.cli.exit_code import ExitCode
from tenure.cli.failure import CliError
from tenure.cli.help import CommandGroup
from tenure.cli.parameter import examples, schema_option, store_option

if TYPE_CHECKING:
    from tenure.cli.database.inspection import Check, DatabaseStatus
    from tenure.cli.show.output import Output

_PROGRESS_SECONDS: Final = 0.2


@click.group(cls=CommandGroup, short_help="Migrate and check the database.")
def db() -> None:
    """Migrate and check the database of a server. No server has to run."""


@contextlib.contextmanager
def _store_errors(form: str, url: str) -> Iterator[Output]:
    """Hand out the output, and turn what a store may raise into an error for people."""
    from tenure.cli.database.store_failure import failure_of
    from tenure.cli.show.output import Output

    try:
        yield Output("table" if form == "table" else "json" if form == "json" else "jsonl")
    except Exception as error:
        failure = failure_of(error, url)
        if failure is None:
            raise
        failure.is_json = form != "table"
        raise failure from error


@db.command(
    short_help="Update the schema of the database.",
    epilog=examples(
        "tenure db migrate --store sqlite:///tenure.db",
        "TENURE_STORE=postgresql://tenure@db/tenure tenure db migrate",
    ),
)
@store_option
@schema_option
@output_option
def migrate(store_url: str, schema: str, form: str) -> None:
    """Update the schema of the database. A SQLite file that is missing is created.

    A server does the same when it starts. Servers of the previous version keep running.
    """
    from tenure.cli.database import inspection

    with _store_errors(form, store_url) as output:
        before, after = inspection.migrate(store_url, schema)
        was = 0 if before is None else before.schema_version
        if not output.is_table:
            output.write(after)
        elif was == after.schema_version:
            output.say(f"{after.store} is up to date: schema {was}.")
        else:
            output.say(f"{after.store} is migrated from schema {was} to {after.schema_version}.")


@db.command(
    short_help="Show the version of the schema.",
    epilog=examples("tenure db status --store sqlite:///tenure.db -o json"),
)
@store_option
@schema_option
@output_option
def status(store_url: str, schema: str, form: str) -> None:
    """Show the version of the schema, pending migrations and the size. Nothing is changed."""
    from tenure.cli.database import inspection

    with _store_errors(form, store_url) as output:
        found = inspection.read_status(store_url, schema)
        if output.is_table:
            output.facts(_facts(found))
        else:
            output.write(found)


def _facts(status: DatabaseStatus) -> Iterator[tuple[str, object]]:
    from tenure.cli.show.text import size_text

    place = f", PostgreSQL schema {status.schema}" if status.schema else ""
    yield "store", f"{status.store}{place}"
    yield "schema", f"{status.schema_version}" if status.applied else "none yet"
    pending = ", ".join(f"{step.number} {step.name}" for step in status.pending)
    yield "pending", f"{pending}: run tenure db migrate" if pending else "nothing"
    yield "size", size_text(status.size_bytes)
    if status.wal_bytes is not None:
        yield "wal", size_text(status.wal_bytes)


@db.command(
    short_help="Check the database for damage.",
    epilog=examples("tenure db check --store sqlite:///tenure.db"),
)
@store_option
@schema_option
@output_option
def check(store_url: str, schema: str, form: str) -> None:
    """Check the database for damage, and compare every stored payload with its checksum.

    Every page of a SQLite file is checked; PostgreSQL must be reachable and writable. The server
    may run meanwhile. If something is wrong, each damaged row is named and the exit code is 1.
    """
    from tenure.cli.database import inspection
    from tenure.cli.show.text import one_line

    with _store_errors(form, store_url) as output:
        progress = _RowProgress()
        try:
            found = inspection.check(store_url, schema, progress)
        finally:
            progress.end()
        if not output.is_table:
            output.write(found)
            if not found.ok:
                raise click.exceptions.Exit(ExitCode.FAILED)
        elif found.ok:
            output.say(f"{found.store} is not damaged.")
            _note_unverified(output, found)
        else:
            for problem in found.problems:
                output.note(one_line(problem))
            raise CliError(
                f"{found.store} is damaged or cannot be written.",
                why="; ".join(map(one_line, found.problems[:5])) + ".",
                hint="Keep a copy of the database as it is, then restore a backup.",
            )


def _note_unverified(output: Output, found: Check) -> None:
    if not found.is_verified:
        output.note("Payloads have no checksums until the schema is updated: tenure db migrate")
    elif found.unverified_count:
        output.note(
            f"{found.unverified_count} of {found.row_count} rows have no checksum: an earlier "
            "version wrote them."
        )


class _RowProgress:
    """Says on a terminal how many rows were looked at, some times a second."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._next_s = 0.0

    def __call__(self, row_count: int) -> None:
        now_s = time.monotonic()
        if self._is_shown and now_s >= self._next_s:
            self._next_s = now_s + _PROGRESS_SECONDS
            click.echo(f"\r{row_count} rows checked", nl=False, err=True)

    def end(self) -> None:
        """Leave the line."""
        if self._next_s:
            click.echo(err=True)
