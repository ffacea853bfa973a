"""``tenure tasks explain``: what it shows."""

from __future__ import annotations

from collections.abc import Iterator

import click

from tenure.cli.show.output import Output
from tenure.cli.show.text import escaped
from tenure.cli.show.view import Shown
from tenure.v1 import task_service_pb2


class ShownReason(Shown, frozen=True):
    """One reason, with what to do and how it is known."""

    code: str
    message: str
    advice: str
    evidence: dict[str, str]


class ShownExplanation(Shown, frozen=True):
    """Why a task is not running now, the decisive reason first."""

    task_id: str
    state: str
    reasons: list[ShownReason]

    @property
    def first(self) -> str:
        """The reason that alone keeps the task from running, in one sentence."""
        reason = self.reasons[0]
        return f"{reason.code}: {reason.message}"

    @property
    def command(self) -> str:
        """The command that says the rest."""
        return f"tenure tasks explain {self.task_id}"


def explanation(
    task_id: str, state: str, answer: task_service_pb2.ExplainTaskResponse
) -> ShownExplanation:
    """Return what the server said."""
    reasons = [
        ShownReason(each.code, each.message, each.advice, dict(sorted(each.evidence.items())))
        for each in answer.reasons
    ]
    return ShownExplanation(task_id, state, reasons)


def show(output: Output, found: ShownExplanation) -> None:
    """Show the reasons in their order; each line of JSON is one of them."""
    if output.form == "jsonl":
        for reason in found.reasons:
            output.write(reason)
    elif output.form == "json":
        output.write(found)
    else:
        output.say(f"Task {found.task_id} is {found.state}.")
        for number, reason in enumerate(found.reasons, 1):
            for line in _lines(number, reason):
                click.echo(line)


def _lines(number: int, reason: ShownReason) -> Iterator[str]:
    yield ""
    yield f"{number}. {click.style(reason.code, bold=True)}: {escaped(reason.message)}"
    if reason.advice:
        yield f"   {escaped(reason.advice)}"
    for name, value in reason.evidence.items():
        yield click.style(f"   {name}: {escaped(value)}", dim=True)
