"""``tenure tasks explain`` and ``tenure runs explain``: what they show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click

from tenure.cli.show.output import Output
from tenure.cli.show.text import escaped
from tenure.cli.show.view import Shown
from tenure.v1 import task_pb2, task_service_pb2, workflow_service_pb2


class ShownReason(Shown, frozen=True):
    """One reason, with what to do and how it is known."""

    code: str
    message: str
    advice: str
    evidence: dict[str, str]
    tasks: list[ShownTaskReasons] | None = None


class ShownTaskReasons(Shown, frozen=True):
    """A task or a run that a run waits for, with its reasons."""

    task_id: str
    type: str
    kind: str
    status: str
    reasons: list[ShownReason]


class ShownExplanation(Shown, frozen=True):
    """Why a task is not running now, the decisive reason first."""

    task_id: str
    state: str
    reasons: list[ShownReason]

    @property
    def first(self) -> str:
        """The reason that alone keeps the task from running, in one sentence."""
        return first_sentence(self.reasons)

    @property
    def head(self) -> str:
        """Where it stands, in one sentence."""
        return f"Task {self.task_id} is {self.state}."

    @property
    def command(self) -> str:
        """The command that says the rest."""
        return f"tenure tasks explain {self.task_id}"


class ShownRunExplanation(Shown, frozen=True):
    """Why a run does not go on now, the decisive reason first."""

    run_id: str
    status: str
    reasons: list[ShownReason]

    @property
    def head(self) -> str:
        """Where it stands, in one sentence."""
        return f"Run {self.run_id} is {self.status}."


def first_sentence(reasons: list[ShownReason]) -> str:
    """Return the reason that counts now, down to what is in the way of what it waits for."""
    reason = reasons[0]
    text = f"{reason.code}: {reason.message}"
    while reason.tasks:
        task = reason.tasks[0]
        reason = task.reasons[0]
        text += f" {_title(task)}: {reason.code}: {reason.message}"
    return text


def explanation(
    task_id: str, state: str, answer: task_service_pb2.ExplainTaskResponse
) -> ShownExplanation:
    """Return what the server said."""
    return ShownExplanation(task_id, state, _reasons(answer.reasons))


def run_explanation(
    answer: workflow_service_pb2.ExplainWorkflowRunResponse, status: str
) -> ShownRunExplanation:
    """Return what the server said of a run."""
    return ShownRunExplanation(answer.run_id, status, _reasons(answer.reasons))


def _reasons(found: Iterable[task_service_pb2.Reason]) -> list[ShownReason]:
    return [
        ShownReason(
            each.code,
            each.message,
            each.advice,
            dict(sorted(each.evidence.items())),
            [_task(task) for task in each.tasks] or None,
        )
        for each in found
    ]


def _task(found: task_service_pb2.ExplainedTask) -> ShownTaskReasons:
    kind = task_pb2.TaskKind.Name(found.kind).removeprefix("TASK_KIND_")
    return ShownTaskReasons(found.task_id, found.type, kind, found.status, _reasons(found.reasons))


def _title(task: ShownTaskReasons) -> str:
    noun = "Run" if task.kind == "WORKFLOW" else "Task"
    return f"{noun} {task.task_id} ({escaped(task.type)}) is {task.status}"


def show(output: Output, found: ShownExplanation | ShownRunExplanation) -> None:
    """Show the reasons in their order; each line of JSON is one of them."""
    if output.form == "jsonl":
        for reason in found.reasons:
            output.write(reason)
    elif output.form == "json":
        output.write(found)
    else:
        output.say(found.head)
        for line in _all_lines(found.reasons, ""):
            click.echo(line)


def _all_lines(reasons: list[ShownReason], margin: str) -> Iterator[str]:
    for number, reason in enumerate(reasons, 1):
        yield ""
        for line in _lines(number, reason):
            yield margin + line
        for task in reason.tasks or ():
            yield ""
            yield f"{margin}   {_title(task)}."
            yield from _all_lines(task.reasons, f"{margin}   ")


def _lines(number: int, reason: ShownReason) -> Iterator[str]:
    yield f"{number}. {click.style(reason.code, bold=True)}: {escaped(reason.message)}"
    if reason.advice:
        yield f"   {escaped(reason.advice)}"
    for name, value in reason.evidence.items():
        yield click.style(f"   {name}: {escaped(value)}", dim=True)
