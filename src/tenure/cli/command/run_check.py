"""``tenure runs check``, ``lint`` and ``export``: code and journals beside each other."""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, Unpack

import click

from tenure.cli import parameter, suggestion
from tenure.cli.client.invocation import Invocation, output_option, with_bare_server, with_server
from tenure.cli.exit_code import ExitCode
from tenure.cli.failure import CliError
from tenure.cli.help import HelpCommand
from tenure.cli.parameter import examples, option

if TYPE_CHECKING:
    from tenure.cli.show.output import Format
    from tenure.sdk.journal_check.checker import RunChecker
    from tenure.sdk.payload import Codec
    from tenure.sdk.workflow.definition import Workflow
    from tenure.sdk.workflow.guard import Guard
    from tenure.v1 import task_pb2
    from tenure.v1.workflow_service_pb2 import WorkflowRun

_MODULE: Final = click.argument("module", metavar="MODULE", shell_complete=suggestion.modules)
_PROGRESS_S: Final = 2.0
# A run that goes on while it is looked for may be listed twice. This many are remembered.
_SEEN_MAX: Final = 100_000


class _Code(NamedTuple):
    """What a module runs."""

    workflows: list[Workflow[..., Any]]
    codec: Codec | None
    guard: Guard


class _Choice(TypedDict):
    """Which runs are checked."""

    type_name: str
    sample: int | None
    finished_ms: int | None


@click.command(
    cls=HelpCommand,
    short_help="Check whether live runs fit new code.",
    epilog=examples(
        "tenure runs check app.tasks --target production:7301",
        "tenure runs check app.tasks --type checkout --finished 24h",
        "tenure runs check app.tasks -o json | jq '.groups[] | select(.verdict == \"would park\")'",
    ),
)
@_MODULE
@click.option("--type", "type_name", default="", help="Only runs of this type.")
@click.option("--sample", type=click.IntRange(1), help="Only so many runs of each type and status.")
@click.option(
    "--finished",
    "finished_ms",
    metavar="DURATION",
    type=parameter.duration_ms,
    help="Also runs that have ended within this time.",
)
@click.option(
    "--each", "is_each", is_flag=True, help="Re-run every run, also those of equal shape."
)
@click.option(
    "--codec",
    metavar="MODULE:NAME",
    help="The codec of payloads, unless the module has a worker with one.",
)
@click.option("-v", "--verbose", "is_verbose", is_flag=True, help="Show tracebacks of the module.")
@with_server
def check(
    call: Invocation,
    *,
    module: str,
    is_each: bool,
    codec: str | None,
    is_verbose: bool,
    **choice: Unpack[_Choice],
) -> None:
    """Check whether the live runs of a server fit the code of MODULE, before it is deployed.

    The body of each run is run again up to where it stands, with what was recorded. Nothing is
    executed: no step, no child, no signal. Of runs with the same calls in their journals one is run
    again. The exit code is 1 if a run would park, or if its body would raise or never come to rest.
    MODULE is what tenure worker takes.
    """
    from tenure.sdk.journal_check.checker import RunChecker

    code = _load(module, codec, is_verbose=is_verbose)
    checker = RunChecker(code.workflows, codec=code.codec, guard=code.guard, is_each=is_each)
    # What bodies print is no result.
    with contextlib.redirect_stdout(sys.stderr):
        _check_runs(call, checker, choice)
    is_whole = choice["sample"] is None and choice["finished_ms"] is None
    _show_report(call, checker, is_whole=is_whole)


def _load(module: str, codec: str | None, *, is_verbose: bool) -> _Code:
    """Import what a worker would run."""
    from tenure.cli import module as source
    from tenure.sdk.worker.worker import Worker
    from tenure.sdk.workflow import registry

    source.add_folder()
    source.split(module)
    found = source.load(module, is_verbose=is_verbose)
    given = None if codec is None else source.load_codec(codec)
    if isinstance(found, Worker):
        return _Code(list(found.workflows), given or found.codec, found.guard)
    _, workflows = registry.split(found)
    if not workflows:
        raise CliError(
            f"{module} has no workflows.",
            hint="Name the module that tenure worker runs.",
            exit_code=ExitCode.USAGE,
        )
    return _Code(list(workflows), given, "refuse")


def _check_runs(call: Invocation, checker: RunChecker, choice: _Choice) -> None:
    told_s = time.monotonic()
    for run in _chosen(call, choice):
        try:
            checker.check(call.client.journals, run)
        except CliError as error:
            # It has ended, and was removed since it was listed.
            if error.code != "not_found":
                raise
        if time.monotonic() - told_s > _PROGRESS_S:
            told_s = time.monotonic()
            broken = checker.summary.broken_runs
            call.output.note(f"{checker.summary.runs:,} runs checked, {broken:,} do not fit.")


def _chosen(call: Invocation, choice: _Choice) -> Iterator[WorkflowRun]:
    """Yield the runs to check, each once."""
    from tenure.cli.client.journal_client import ENDED, LIVE

    seen: dict[str, None] = {}
    # Those that went on while others were listed are found at the second look.
    for status in (*LIVE, *LIVE[:2]):
        for run in _sample(call, status, choice):
            if run.run_id not in seen:
                seen[run.run_id] = None
                if len(seen) > _SEEN_MAX:
                    del seen[next(iter(seen))]
                yield run
    if choice["finished_ms"] is None:
        return
    since_ms = call.client.now_ms() - choice["finished_ms"]
    for status in ENDED:
        for run in _sample(call, status, choice, since_ms=since_ms):
            if run.run_id not in seen:
                yield run


def _sample(
    call: Invocation, status: str, choice: _Choice, *, since_ms: int = 0
) -> Iterator[WorkflowRun]:
    counts: dict[str, int] = {}
    for run in call.client.journals.list_runs(status, choice["type_name"]):
        if since_ms and run.finished_at.ToMilliseconds() < since_ms:
            continue
        count = counts[run.workflow_type] = counts.get(run.workflow_type, 0) + 1
        if choice["sample"] is None or count <= choice["sample"]:
            yield run


def _show_report(call: Invocation, checker: RunChecker, *, is_whole: bool) -> None:
    from tenure.cli.show import check_view

    report = checker.summary.report(is_whole=is_whole)
    if call.output.form == "jsonl":
        for each in (*report.groups, *report.warnings):
            call.output.write(each)
    elif call.output.form == "json":
        call.output.write(report)
    else:
        check_view.show(call.output, report)
    if report.is_broken:
        raise click.exceptions.Exit(ExitCode.FAILED)


@click.command(
    cls=HelpCommand,
    short_help="Write the journal of a run to a file.",
    epilog=examples(
        "tenure runs export ID --output tests/journals/checkout.json",
        "tenure runs export ID --format chrome --output checkout.trace",
    ),
)
@click.argument("run_id", metavar="ID", shell_complete=suggestion.run_ids)
@option(
    "--format",
    "kind",
    type=click.Choice(["json", "chrome"]),
    default="json",
    help="json is for tests and programs, chrome is a timeline for Perfetto.",
)
@click.option(
    "--output",
    "file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write it. [default: stdout]",
)
@with_bare_server
def export(call: Invocation, *, run_id: str, kind: str, file: Path | None) -> None:
    """Write a run, live or finished, with its input and all that was recorded of it.

    The file has the payloads of the run in it. The fixture check_journals of the test kit checks
    code against such files. With --format chrome it is a timeline, for https://ui.perfetto.dev.
    """
    parts = _exported(call, run_id, kind)
    if file is None:
        for part in parts:
            click.echo(part, nl=False)
        return
    # Before anything is written it is known that the run is there.
    first = next(parts)
    try:
        with file.open("wb") as opened:
            for part in itertools.chain((first,), parts):
                opened.write(part)
    except OSError as error:
        what = f"Cannot write {file}: {error.strerror or error}."
        raise CliError(what, exit_code=ExitCode.USAGE) from error
    call.output.note(f"Written to {file}.")


def _exported(call: Invocation, run_id: str, kind: str) -> Iterator[bytes]:
    from tenure.sdk.journal_check import journal_file, trace

    journals = call.client.journals
    run = journals.get_run(run_id)
    pages = journals.pages(run_id)
    if kind == "chrome":
        return trace.write(run, pages, call.client.now_ms())
    keys: list[str] = []
    return journal_file.write(run, _noting_groups(pages, keys), _results(call, run_id, keys))


def _noting_groups(
    pages: Iterable[task_pb2.JournalPage], keys: list[str]
) -> Iterator[task_pb2.JournalPage]:
    """Pass pages on, and note the groups whose results belong to the document."""
    from tenure.v1 import task_pb2

    for page in pages:
        keys += [each.key for each in page.groups]
        yield page
        for entry in page.entries:
            if entry.content.kind == task_pb2.ENTRY_KIND_GROUP:
                keys.append(entry.content.key)


def _results(
    call: Invocation, run_id: str, keys: list[str]
) -> Iterator[tuple[str, Iterable[task_pb2.JournalPage]]]:
    for key in dict.fromkeys(keys):
        yield key, _result_pages(call, run_id, key)


def _result_pages(call: Invocation, run_id: str, key: str) -> Iterator[task_pb2.JournalPage]:
    after = 0
    while True:
        page = call.client.journals.results(run_id, key, after)
        yield page
        if not page.entries or page.entries[-1].pos >= page.end:
            return
        after = page.entries[-1].pos


@click.command(
    cls=HelpCommand,
    short_help="Find code in workflows that is not the same each time.",
    epilog=examples("tenure runs lint app.tasks", "tenure runs lint app.tasks -o jsonl"),
)
@_MODULE
@click.option("-v", "--verbose", "is_verbose", is_flag=True, help="Show tracebacks of the module.")
@output_option
def lint(module: str, form: Format, *, is_verbose: bool) -> None:
    """Find what may come out differently when a workflow of MODULE is run again.

    These are clocks, random numbers, sets whose order is used, blocking calls, forms of asyncio
    that are refused, and global variables that are changed; in the bodies, and in functions of the
    same file that they call. No server is needed. A comment `# tenure: ok` silences a line. The
    exit code is 1 if something was found.
    """
    from tenure.cli.show.output import Output
    from tenure.sdk.body_lint.lint import lint as find

    output = Output(form)
    try:
        found = find(_load(module, None, is_verbose=is_verbose).workflows)
    except CliError as error:
        error.is_json = not output.is_table
        raise
    if form == "json":
        output.write({"findings": found})
    else:
        for each in found:
            output.say(str(each)) if output.is_table else output.write(each)
    output.note(f"{len(found)} finding{'s' * (len(found) != 1)}.")
    if found:
        raise click.exceptions.Exit(ExitCode.FAILED)
