"""The facts that an explanation is made from, and its parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from tenure.core.endpoint.record import Endpoint
from tenure.core.group.record import Group
from tenure.core.instant import instant_text
from tenure.core.queue import Queue
from tenure.core.task.attempt import Attempt
from tenure.core.task.record import Task, TaskKind
from tenure.core.task.retry import ErrorInfo
from tenure.core.worker.health import Health
from tenure.core.worker.record import EndReason, WorkerStatus

DEFAULT_NAMESPACE: Final = "default/default"
# Texts of users are shortened; the task itself has all of it.
_SHOWN_CHARACTERS_MAX: Final = 200


class WaitingReason(msgspec.Struct, frozen=True):
    """Why a task is not running now: a stable code, what to do, and the evidence."""

    code: str
    message: str
    advice: str = ""
    evidence: dict[str, str] = {}
    # What a run waits for: the first tasks and runs of it, each with its own reasons.
    tasks: tuple[TaskExplanation, ...] = ()


class TaskExplanation(msgspec.Struct, frozen=True):
    """Where a task or a run stands, and why it is not running, the reason that counts now first.

    ``status`` is the state of a task or the status of a run, in lower case.
    """

    task: Task
    status: str
    reasons: tuple[WaitingReason, ...]

    @property
    def text(self) -> str:
        """Return the reasons as one text for people, with what each of them waits for."""
        return "\n".join(_lines(self.reasons, ""))


def _lines(reasons: Iterable[WaitingReason], margin: str) -> Iterator[str]:
    for reason in reasons:
        yield f"{margin}{reason.message} {reason.advice}".rstrip()
        for each in reason.tasks:
            yield f"{margin}  {task_title(each.task)} is {each.status.upper()}."
            yield from _lines(each.reasons, f"{margin}  ")


def task_title(task: Task) -> str:
    """Return how a task or a run is named in a text."""
    noun = "Task" if task.kind is TaskKind.ACTIVITY else "Run"
    return f"{noun} {task.id} ({task.type})"


class Member(msgspec.Struct, frozen=True, gc=False):
    """One worker, as far as it matters for the hand-out of this task."""

    id: str
    name: str
    slots: int
    held_count: int

    @property
    def title(self) -> str:
        """Return the name that is shown."""
        return self.name or self.id


class Crew(msgspec.Struct, frozen=True):
    """Workers of the queue that offer the type and have the same state: the first, and how many."""

    status: WorkerStatus
    health: Health
    is_full: bool
    is_guarding: bool
    count: int
    members: tuple[Member, ...]


class NearWorker(msgspec.Struct, frozen=True):
    """An active worker that does not fit because of its queue or its types."""

    id: str
    name: str
    queue: str
    types: tuple[str, ...]
    alike_count: int


class EndedWorker(msgspec.Struct, frozen=True, gc=False):
    """The worker of the queue that ended last."""

    id: str
    name: str
    ended_at_ms: int
    reason: EndReason


class HeldTask(msgspec.Struct, frozen=True, gc=False):
    """One of the tasks that count towards the limit of the queue."""

    task_id: str
    type: str
    worker_id: str
    worker_name: str
    handed_at_ms: int


class Holder(msgspec.Struct, frozen=True, gc=False):
    """The worker that holds the task; without a health it has no lease any more."""

    id: str
    name: str
    status: WorkerStatus
    health: Health | None = None
    beat_at_ms: int = 0


class Awaited(msgspec.Struct, frozen=True):
    """The first tasks that a call of a run has made and that it waits for.

    The call of a map has a ``group`` of them.
    """

    facts: tuple[Facts, ...]
    group: Group | None = None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a task. Lists have their first items; counts stop at a limit."""

    task: Task
    now_ms: int
    queue: Queue
    is_disabled: bool = False
    held_count: int = 0
    held: tuple[HeldTask, ...] = ()
    crews: tuple[Crew, ...] = ()
    near: tuple[NearWorker, ...] = ()
    # Of a run: the served workers that offer its type, and never get it.
    served_count: int = 0
    # Of an activity that no worker can run: the endpoints that offer its type, and what they hold.
    endpoints: tuple[Endpoint, ...] = ()
    endpoint_held: dict[str, int] = {}
    last_ended: EndedWorker | None = None
    holder: Holder | None = None
    losses: tuple[Attempt, ...] = ()
    ahead_count: int = 0
    # Of a run that waits: by the key of the call.
    awaited: dict[str, Awaited] = {}

    def command(self, text: str) -> str:
        """Return a command with the namespace of the task."""
        namespace = self.task.namespace
        return text if namespace == DEFAULT_NAMESPACE else f"{text} --namespace {namespace}"

    def own_command(self, verb: str) -> str:
        """Return a command about the task; runs have commands of their own."""
        group = "tasks" if self.task.kind is TaskKind.ACTIVITY else "runs"
        return self.command(f"tenure {group} {verb} {self.task.id}")


def instants(**at_ms: int | None) -> dict[str, str]:
    """Return the known instants, as evidence."""
    return {name: instant_text(each) for name, each in at_ms.items() if each}


def shortened(text: str) -> str:
    """Return the beginning of a text, on one line."""
    line = " ".join(text.split())
    if len(line) <= _SHOWN_CHARACTERS_MAX:
        return line
    return line[: _SHOWN_CHARACTERS_MAX - 1] + "…"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a number and its noun: ``1 worker``, ``2 workers``."""
    return f"{count} {noun}" if count == 1 else f"{count} {plural or noun + 's'}"


def error_text(error: ErrorInfo) -> str:
    """Return an error on one line, with its type."""
    kind = error.type or error.category.value
    return f"{kind}: {shortened(error.message)}" if error.message else kind


def error_evidence(error: ErrorInfo) -> dict[str, str]:
    """Return what is known of an error."""
    found = {"errorCategory": error.category.value, "errorMessage": shortened(error.message)}
    return {"errorType": error.type, **found} if error.type else found
