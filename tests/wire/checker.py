"""What must be true of the lines that workers wrote, whatever happened meanwhile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from tenure.v1.task_pb2 import TASK_STATE_SUCCEEDED, Task, TaskState
from tenure.v1.task_service_pb2 import TaskResult
from tests.chaos.journal import Acknowledged, Done
from tests.wire.journal import Line

COMPLAINTS_MAX = 20
_ENDS = frozenset({"end", "stopped", "cancelled"})


def starts(lines: Iterable[Line]) -> dict[str, list[Line]]:
    """Return the starts of each task, in the order of time."""
    found: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        if line.event == "start":
            found[line.task_id].append(line)
    return found


def check_once(lines: Iterable[Line], task_ids: Iterable[str]) -> list[str]:
    """Complain about tasks that did not run exactly once."""
    found = starts(lines)
    return [
        f"task {task_id} was started {len(found[task_id])} times"
        for task_id in task_ids
        if len(found[task_id]) != 1
    ][:COMPLAINTS_MAX]


def check_calm(lines: Sequence[Line]) -> list[str]:
    """Complain about workers that were judged, and about answers that no fault explains."""
    return [
        f"worker {line.worker_id}: {line.event} {line.text}"
        for line in lines
        if (line.event == "over" and line.text != "deregistered") or line.event == "odd"
    ][:COMPLAINTS_MAX]


def check_succeeded(tasks: Iterable[Task], *, attempt: int = 1) -> list[str]:
    """Complain about tasks that did not succeed with this attempt, charged for nothing else."""
    complaints = []
    for task in tasks:
        if task.state != TASK_STATE_SUCCEEDED or task.attempt != attempt:
            state = TaskState.Name(task.state)
            complaints.append(f"task {task.task_id} is {state} with attempt {task.attempt}")
        if task.failure_count:
            complaints.append(f"task {task.task_id} was charged {task.failure_count} failures")
    return complaints[:COMPLAINTS_MAX]


def check_accepted(lines: Iterable[Line]) -> list[str]:
    """Complain about tasks of which two ends were accepted, or one that had not run."""
    accepted: dict[str, set[tuple[str, int]]] = defaultdict(set)
    ended = set()
    for line in lines:
        if line.event == "accepted":
            accepted[line.task_id].add(line.ref)
        elif line.event in _ENDS:
            ended.add(line.ref)
    twice = [f"{len(refs)} ends of {each}" for each, refs in accepted.items() if len(refs) > 1]
    early = [f"{ref} ended before it ran" for refs in accepted.values() for ref in refs - ended]
    return [*twice, *early][:COMPLAINTS_MAX]


def check_outputs(lines: Iterable[Line], results: Mapping[str, TaskResult]) -> list[str]:
    """Complain about accepted ends that are not those that are stored."""
    complaints = []
    for line in lines:
        if line.event == "accepted":
            stored = results.get(line.task_id)
            if stored is None or (stored.attempt, stored.output.decode()) != (
                line.attempt,
                line.text,
            ):
                complaints.append(f"{line.ref} was accepted, but is not what is stored")
    return complaints[:COMPLAINTS_MAX]


def acknowledged(lines: Iterable[Line], enqueued: Iterable[str]) -> Acknowledged:
    """Return what the workers and the client were told, for the checker of the stored rows."""
    told = Acknowledged(enqueued=set(enqueued))
    for line in lines:
        if line.event == "accepted":
            told.done[line.task_id].add(Done(line.task_id, line.attempt, line.text))
    return told
