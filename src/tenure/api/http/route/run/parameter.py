"""The query parameters of the paths of runs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType, field

from tenure.api.http.parameter import CountedPageQuery, Label, Scoped, chosen, labels_of, name_of
from tenure.api.http.route.task.body import instant_ms
from tenure.core.filter import RunFilter
from tenure.core.limits import ATTEMPT_MAX
from tenure.core.run.status import RunStatus


class RunListQuery(CountedPageQuery, frozen=True):
    """Filter for runs."""

    queue: str = ""
    type: str = ""
    status: Annotated[str, name_of(RunStatus, "Only runs of this status")] = ""
    label: Label = field(default_factory=list)
    external_id: Annotated[
        str, Meta(description="Only runs whose external id begins with this")
    ] = ""
    created_from: (
        Annotated[datetime, Meta(tz=True, description="Only runs that were created then or later")]
        | UnsetType
    ) = UNSET
    created_to: (
        Annotated[datetime, Meta(tz=True, description="Only runs that were created before")]
        | UnsetType
    ) = UNSET

    def filter(self) -> RunFilter:
        """Return the filter of the list."""
        return RunFilter(
            queue=self.queue,
            type=self.type,
            status=chosen(RunStatus, self.status, "status"),
            labels=labels_of(self.label),
            created_from_ms=_instant_ms(self.created_from, "createdFrom"),
            created_to_ms=_instant_ms(self.created_to, "createdTo"),
            external_id_prefix=self.external_id,
        )


def _instant_ms(given: datetime | UnsetType, field: str) -> int | None:
    return None if given is UNSET else instant_ms(given, field)


class JournalQuery(Scoped, frozen=True):
    """Which page of a journal."""

    after: Annotated[
        int, Meta(description="Behind this position; 0 is the beginning", ge=0, le=ATTEMPT_MAX)
    ] = 0
