"""``tenure db``: what is done to the database itself, with or without a server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from tenure.cli.exit_code import ExitCode
from tenure.cli.failure import CliError
from tenure.cli.invocation import output_option
from tenure.cli.parameter import examples, store_option

if TYPE_CHECKING:
    from tenure.cli.inspection import Status
    from tenure.cli.output import Output


@click.group(short_help="Look after the database of a server.")
def db() -> None:
    """Look after the database of a server; no server has to run."""


@contextlib.contextmanager
def _store_errors(form: str, url: str) -> Iterator[Output]:
    """Hand out the output, and turn what a store may raise into an error for people."""
    from tenure.cli.output import Output  # noqa: PLC0415 (not for --help)
    from tenure.cli.store_failure import failure_of  # noqa: PLC0415

    try:
        yield Output("table" if form == "table" else "json" if form == "json" else "jsonl")
    except Exception as error:
        failure = failure_of(error, url)
        if failure is None:
            raise
        failure.is_json = form != "table"
        raise failure from error


@db.command(
    short_help="Bring the schema up to date.",
    epilog=examples(
        "tenure db migrate --store sqlite:///tenure.db",
        "TENURE_STORE=postgresql://tenure@db/tenure tenure db migrate",
    ),
)
@store_option
@output_option
def migrate(store_url: str, form: str) -> None:
    """Bring the schema up to date, and make the database if it is a new SQLite file.

    A server does the same when it starts. Servers of the version before go on beside it.
    """
    from tenure.cli import inspection  # noqa: PLC0415 (loads the store)

    with _store_errors(form, store_url) as output:
        before, after = inspection.migrate(store_url)
        was = 0 if before is None else before.schema_version
        if not output.is_table:
            output.write(after)
        elif was == after.schema_version:
            output.say(f"{after.store} is up to date: schema {was}.")
        else:
            output.say(f"{after.store} went from schema {was} to {after.schema_version}.")


@db.command(
    short_help="Show how far the schema is.",
    epilog=examples("tenure db status --store sqlite:///tenure.db -o json"),
)
@store_option
@output_option
def status(store_url: str, form: str) -> None:
    """Show the schema, what is still to be applied, and the size; nothing is changed."""
    from tenure.cli import inspection  # noqa: PLC0415 (loads the store)

    with _store_errors(form, store_url) as output:
        found = inspection.read_status(store_url)
        if output.is_table:
            output.facts(_facts(found))
        else:
            output.write(found)


def _facts(status: Status) -> Iterator[tuple[str, object]]:
    from tenure.cli.text import size_text  # noqa: PLC0415 (not for --help)

    yield "store", status.store
    yield "schema", f"{status.schema_version}" if status.applied else "none yet"
    pending = ", ".join(f"{step.number} {step.name}" for step in status.pending)
    yield "pending", f"{pending}: run tenure db migrate" if pending else "nothing"
    yield "size", size_text(status.size_bytes)
    if status.wal_bytes is not None:
        yield "wal", size_text(status.wal_bytes)


@db.command(
    short_help="Check that the database is sound.",
    epilog=examples("tenure db check --store sqlite:///tenure.db"),
)
@store_option
@output_option
def check(store_url: str, form: str) -> None:
    """Check every page of a SQLite file, or that PostgreSQL is reachable and can be written.

    The exit code is 1 if something is wrong with it.
    """
    from tenure.cli import inspection  # noqa: PLC0415 (loads the store)
    from tenure.store.location import shown  # noqa: PLC0415

    with _store_errors(form, store_url) as output:
        problems = inspection.check(store_url)
        where = shown(store_url)
        if not output.is_table:
            output.write({"store": where, "ok": not problems, "problems": problems})
        elif not problems:
            output.say(f"{where} is sound.")
        if problems and not output.is_table:
            raise click.exceptions.Exit(ExitCode.FAILED)
        if problems:
            raise CliError(
                f"{where} is damaged or cannot be written.",
                why="; ".join(problems[:5]) + ".",
                hint="Keep a copy of the database as it is, then restore a backup.",
            )
