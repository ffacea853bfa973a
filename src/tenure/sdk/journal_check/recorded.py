"""A run with everything that the server has recorded of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from tenure.sdk.payload import Payload
from tenure.v1 import task_pb2
from tenure.v1 import workflow_service_pb2 as pb

Results = Callable[[str, int], task_pb2.JournalPage]
"""Returns the page of the results of a group behind a position."""

ChildInput = Callable[[str], Payload | None]
"""Returns what a child was given, by its id; None if that is not known."""

_ENDED: Final = frozenset(
    {pb.WORKFLOW_STATUS_COMPLETED, pb.WORKFLOW_STATUS_FAILED, pb.WORKFLOW_STATUS_CANCELLED}
)
_AT_REST: Final = frozenset({pb.WORKFLOW_STATUS_SLEEPING, pb.WORKFLOW_STATUS_WAITING})


def no_results(group_key: str, after: int) -> task_pb2.JournalPage:
    """Return that a group has no results."""
    return task_pb2.JournalPage(group_key=group_key, after=after)


def no_input(_task_id: str) -> Payload | None:
    """Return that it is not known what a child was given."""
    return None


class RecordedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run, the entries of its journal in their order, and what is open."""

    run: pb.WorkflowRun
    entries: Sequence[task_pb2.Entry]
    open_children: Sequence[task_pb2.OpenChild] = ()
    open_groups: Sequence[task_pb2.OpenGroup] = ()
    results: Results = no_results
    child_input: ChildInput = no_input

    @property
    def has_ended(self) -> bool:
        """Whether nothing more can happen to it."""
        return self.run.status in _ENDED

    @property
    def is_at_rest(self) -> bool:
        """Whether its body waits for something that has not happened."""
        return self.run.status in _AT_REST
