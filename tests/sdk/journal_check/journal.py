"""Journals made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tenure.sdk.journal_check.recorded import RecordedRun
from tenure.v1 import task_pb2, workflow_service_pb2
from tenure.v1.workflow_service_pb2 import WorkflowRun

WAITING = workflow_service_pb2.WORKFLOW_STATUS_WAITING
RUNNING = workflow_service_pb2.WORKFLOW_STATUS_RUNNING
CANCELLING = workflow_service_pb2.WORKFLOW_STATUS_CANCELLING
COMPLETED = workflow_service_pb2.WORKFLOW_STATUS_COMPLETED
BEGUN_AT_MS = 1_900_000_000_000


def step(key: str, index: int, output: object = None, *, error: str = "") -> task_pb2.NewEntry:
    """Return a step that was recorded."""
    made = task_pb2.NewEntry(
        kind=task_pb2.ENTRY_KIND_STEP,
        key=key,
        index=index,
        attempts=1,
        started_at_ms=BEGUN_AT_MS,
        took_ms=5,
        site="orders.py:7",
    )
    if error:
        made.error.CopyFrom(task_pb2.TaskError(message=error, type="ValueError"))
    else:
        made.output, made.encoding = msgspec.json.encode(output), "json"
    return made


def sleep(key: str, index: int) -> task_pb2.NewEntry:
    """Return a sleep that has ended."""
    return task_pb2.NewEntry(kind=task_pb2.ENTRY_KIND_TIMER, key=key, index=index)


def mark(kind: task_pb2.EntryKind.ValueType, key: str = "") -> task_pb2.NewEntry:
    """Return a signal, a cancel, a patch or the like."""
    return task_pb2.NewEntry(kind=kind, key=key)


def entries(contents: Sequence[task_pb2.NewEntry]) -> list[task_pb2.Entry]:
    """Return contents at their positions, a second after each other."""
    return [
        task_pb2.Entry(pos=pos, at_ms=BEGUN_AT_MS + pos * 1_000, content=content)
        for pos, content in enumerate(contents, 1)
    ]


def recorded(type: str, *contents: task_pb2.NewEntry, **options: Any) -> RecordedRun:
    """Return a run that waits, with its journal."""
    run = WorkflowRun(
        run_id="01981c9e-7d1c-7c43-9a3e-0d2b6f2f9f10",
        namespace_id="default",
        task_queue="default",
        workflow_type=type,
        status=options.get("status", WAITING),
        input=msgspec.json.encode(options.get("input", {})),
        generation=1,
        attempts=1,
    )
    run.options.encoding = "json"
    run.begun_at.FromMilliseconds(BEGUN_AT_MS)
    return RecordedRun(run=run, entries=entries(contents))
