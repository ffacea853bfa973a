"""Checks runs one after the other; those of equal shape are re-run once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from msgspec.structs import replace

from tenure.sdk.journal_check.finding import no_such_type
from tenure.sdk.journal_check.recorded import RecordedRun
from tenure.sdk.journal_check.rerun import rerun
from tenure.sdk.journal_check.shape import ShapeDigest
from tenure.sdk.journal_check.summary import Summary
from tenure.sdk.payload import Codec, Payload
from tenure.sdk.workflow.guard import Guard
from tenure.sdk.workflow.registry import WorkflowRegistry
from tenure.v1 import task_pb2
from tenure.v1.workflow_service_pb2 import WorkflowRun

# A run may begin anew while its journal is read.
_READS_MAX: Final = 3


class RunSource(Protocol):
    """Where runs and their journals are read."""

    def get_run(self, run_id: str) -> WorkflowRun:
        """Return a run with its input."""
        ...

    def pages(self, run_id: str) -> Iterable[task_pb2.JournalPage]:
        """Return the journal of a run in pages; what is open comes with any of them."""
        ...

    def results(self, run_id: str, group_key: str, after: int) -> task_pb2.JournalPage:
        """Return a page of the results of a group."""
        ...

    def child_input(self, task_id: str) -> Payload | None:
        """Return what a child was given; None if it is gone."""
        ...


class RunChecker:
    """Checks runs against the workflows of one program."""

    def __init__(
        self,
        workflows: Iterable[object],
        *,
        codec: Codec | None = None,
        guard: Guard = "refuse",
        is_each: bool = False,
    ) -> None:
        """Check against ``workflows``; ``is_each`` re-runs runs of equal shape one by one too."""
        self.summary = Summary()
        self._workflows = WorkflowRegistry(workflows)
        self._codec = codec
        self._guard: Guard = guard
        self._is_each = is_each

    def check(self, source: RunSource, listed: WorkflowRun) -> None:
        """Check a run as it was listed, without its input."""
        workflow = self._workflows.find(listed.workflow_type)
        if workflow is None:
            shape = ShapeDigest(listed.workflow_type).digest()
            if not self.summary.count(shape):
                found = no_such_type(listed.workflow_type)
                self.summary.add(shape, listed.workflow_type, listed.run_id, found)
            return
        recorded = _recorded(source, listed)
        for _ in range(_READS_MAX):
            shape = shape_of(recorded)
            if not self._is_each and self.summary.count(shape):
                return
            run = source.get_run(listed.run_id)
            began_anew = run.generation != recorded.run.generation
            recorded = _recorded(source, run) if began_anew else replace(recorded, run=run)
            if not began_anew:
                break
        found = rerun(workflow, recorded, codec=self._codec, guard=self._guard)
        self.summary.add(shape_of(recorded), listed.workflow_type, listed.run_id, found)


def shape_of(recorded: RecordedRun) -> bytes:
    """Return what is equal for runs of one shape."""
    digest = ShapeDigest(recorded.run.workflow_type)
    for entry in recorded.entries:
        digest.add(entry)
    for child in recorded.open_children:
        digest.add_open(child)
    for group in recorded.open_groups:
        digest.add_open(group)
    return digest.digest()


def _recorded(source: RunSource, listed: WorkflowRun) -> RecordedRun:
    entries: list[task_pb2.Entry] = []
    children: list[task_pb2.OpenChild] = []
    groups: list[task_pb2.OpenGroup] = []
    for page in source.pages(listed.run_id):
        entries += page.entries
        children += page.open
        groups += page.groups
    return RecordedRun(
        run=listed,
        entries=entries,
        open_children=children,
        open_groups=groups,
        results=lambda key, after: source.results(listed.run_id, key, after),
        child_input=source.child_input,
    )
