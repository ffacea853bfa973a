"""What a check of runs has found, for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import click

from tenure.cli.show.text import one_line
from tenure.sdk.journal_check.finding import Verdict

if TYPE_CHECKING:
    from tenure.cli.show.output import Output
    from tenure.sdk.journal_check.summary import FoundGroup, Report

_STYLES: Final = {Verdict.SAFE: "green", Verdict.NO_TYPE: "yellow"}


def show(output: Output, report: Report) -> None:
    """Write one line for each kind of finding, then warnings, then all of it in one sentence."""
    for group in report.groups:
        style = _STYLES.get(group.verdict, "red")
        click.echo(f"{click.style(group.verdict.upper(), fg=style)} {one_line(_line(group))}")
        if group.verdict is not Verdict.SAFE:
            click.echo(f"  such as run {group.example}")
    for warning in report.warnings:
        label = click.style("WARNING", fg="yellow")
        click.echo(f"{label} {one_line(f'{warning.type}: {warning.message}')}")
        click.echo(f"  such as run {warning.example}")
    output.note(" ".join(_sentences(report)))


def _line(group: FoundGroup) -> str:
    runs = _counted(group.runs, "run")
    where = f"{group.type}: {runs} in {_counted(group.shapes, 'shape')}"
    return f"{where}: {group.message}" if group.message else where


def _sentences(report: Report) -> Iterator[str]:
    yield f"{_counted(report.runs, 'run')} in {_counted(report.shapes, 'shape')} checked."
    if not report.is_broken:
        yield "All of them fit." if report.runs else "There are none."
    elif report.would_park:
        yield f"{report.would_park:,} would park."
        yield "Put the old calls back, or keep them for runs that have them: ctx.patched(…)."


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
