"""The query parameters of the paths of schedules."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from tenure.api.http.body import given_or
from tenure.api.http.parameter import CountedPageQuery, Scoped
from tenure.core.filter import ScheduleFilter
from tenure.core.limits import PREVIEW_FIRES_MAX


class ScheduleListQuery(CountedPageQuery, frozen=True):
    """Filter for schedules."""

    type: Annotated[str, Meta(description="Only those that start this type")] = ""
    paused: (
        Annotated[bool, Meta(description="Only those that are paused, or are not")] | UnsetType
    ) = UNSET

    def filter(self) -> ScheduleFilter:
        """Return the filter of the list."""
        return ScheduleFilter(type=self.type, is_paused=given_or(self.paused, None))


class NextQuery(Scoped, frozen=True):
    """How many instants are wanted."""

    count: Annotated[int, Meta(ge=1, le=PREVIEW_FIRES_MAX)] = 10
