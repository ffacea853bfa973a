"""Why a task is not running, or a run does not go on, as a client shows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from tenure.core.run.status import RunStatus
from tenure.core.task.record import TaskState
from tenure.sdk.client.run_view import status_of
from tenure.sdk.client.view import state_of
from tenure.v1 import task_pb2, workflow_service_pb2
from tenure.v1 import task_service_pb2 as pb


class ExplainedReason(msgspec.Struct, frozen=True):
    """One reason why a task is not running, by a stable code, and what to do about it.

    If it is that a run waits for tasks and runs that it has made, ``tasks`` has the first of them.
    """

    code: str
    message: str
    advice: str = ""
    evidence: dict[str, str] = {}
    tasks: tuple[ExplainedTask, ...] = ()

    @property
    def cause(self) -> ExplainedReason:
        """The reason behind it: why the first of its tasks is not done, and so on."""
        return self.tasks[0].reasons[0].cause if self.tasks else self


class ExplainedTask(msgspec.Struct, frozen=True):
    """A task or a run that a run waits for, and why it is not running.

    ``status`` is the state of a task or the status of a run, such as ``PENDING`` or ``SLEEPING``.
    """

    task_id: str
    type: str
    is_run: bool
    status: str
    reasons: tuple[ExplainedReason, ...]


class Explanation(msgspec.Struct, frozen=True):
    """Why a task is not running now. The first reason alone keeps it from running."""

    task_id: str
    state: TaskState
    reasons: tuple[ExplainedReason, ...]

    def __str__(self) -> str:
        """Return it as a text for people."""
        return "\n".join([f"Task {self.task_id} is {self.state}.", *_lines(self.reasons, "")])


class RunExplanation(msgspec.Struct, frozen=True):
    """Why a run does not go on now. The first reason alone keeps it from that."""

    run_id: str
    status: RunStatus
    reasons: tuple[ExplainedReason, ...]

    def __str__(self) -> str:
        """Return it as a text for people."""
        return "\n".join([f"Run {self.run_id} is {self.status}.", *_lines(self.reasons, "")])


def explanation(task_id: str, answer: pb.ExplainTaskResponse) -> Explanation:
    """Show why a task is not running."""
    return Explanation(task_id, state_of(answer.state), _reasons(answer.reasons))


def run_explanation(answer: workflow_service_pb2.ExplainWorkflowRunResponse) -> RunExplanation:
    """Show why a run does not go on."""
    return RunExplanation(answer.run_id, status_of(answer.status), _reasons(answer.reasons))


def _reasons(found: Iterable[pb.Reason]) -> tuple[ExplainedReason, ...]:
    return tuple(
        ExplainedReason(
            each.code,
            each.message,
            each.advice,
            dict(each.evidence),
            tuple(_task(task) for task in each.tasks),
        )
        for each in found
    )


def _task(found: pb.ExplainedTask) -> ExplainedTask:
    is_run = found.kind == task_pb2.TASK_KIND_WORKFLOW
    reasons = _reasons(found.reasons)
    return ExplainedTask(found.task_id, found.type, is_run, found.status, reasons)


def _lines(reasons: Iterable[ExplainedReason], margin: str) -> Iterator[str]:
    for reason in reasons:
        yield f"{margin}{reason.code}: {reason.message} {reason.advice}".rstrip()
        for task in reason.tasks:
            noun = "Run" if task.is_run else "Task"
            yield f"{margin}  {noun} {task.task_id} ({task.type}) is {task.status}."
            yield from _lines(task.reasons, f"{margin}  ")
