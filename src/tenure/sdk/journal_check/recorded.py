"""A run with everything that the server has recorded of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from tenure.v1 import task_pb2, workflow_service_pb2

Results = Callable[[str, int], task_pb2.JournalPage]
"""Returns the page of the results of a group behind a position."""

_ENDED = frozenset(
    {
        workflow_service_pb2.WORKFLOW_STATUS_COMPLETED,
        workflow_service_pb2.WORKFLOW_STATUS_FAILED,
        workflow_service_pb2.WORKFLOW_STATUS_CANCELLED,
    }
)
_AT_REST = frozenset(
    {workflow_service_pb2.WORKFLOW_STATUS_SLEEPING, workflow_service_pb2.WORKFLOW_STATUS_WAITING}
)


def no_results(group_key: str, after: int) -> task_pb2.JournalPage:
    """Return that a group has no results."""
    return task_pb2.JournalPage(group_key=group_key, after=after)


class RecordedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run, the entries of its journal in their order, and what is open."""

    run: workflow_service_pb2.WorkflowRun
    entries: Sequence[task_pb2.Entry]
    open_children: Sequence[task_pb2.OpenChild] = ()
    open_groups: Sequence[task_pb2.OpenGroup] = ()
    results: Results = no_results

    @property
    def has_ended(self) -> bool:
        """Whether nothing more can happen to it."""
        return self.run.status in _ENDED

    @property
    def is_at_rest(self) -> bool:
        """Whether its body waits for something that has not happened."""
        return self.run.status in _AT_REST
