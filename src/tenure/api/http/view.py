"""What all answers have in common: omitted fields, instants, names, and pages."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from datetime import timedelta
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tenure.api.http.body import EPOCH
from tenure.engine.read.query import Page
from tenure.engine.rehearsal import Consequence

T = TypeVar("T")
Instant = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
_NEXT: Final = "Missing on the last page; a page may be short or empty although it is not the last"
NextPageToken = Annotated[str, Meta(description=_NEXT)] | UnsetType
TotalCount = Annotated[int, Meta(description="Present when totalCount=true")] | UnsetType
IsTotalExact = (
    Annotated[bool, Meta(description="False when counting stopped: there are at least so many")]
    | UnsetType
)


class View(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An answer; missing values are left out."""


class ErrorView(View, frozen=True):
    """Every error; the fields of its code are at the same level as the message."""

    error: str
    message: str


class ConsequenceView(View, frozen=True):
    """One thing that would happen, how often, and how to say it."""

    code: str
    count: int
    message: str


Consequences = (
    Annotated[list[ConsequenceView], Meta(description="Present when dryRun: nothing was changed")]
    | UnsetType
)


def consequences(found: Iterable[Consequence]) -> list[ConsequenceView]:
    """Show what would happen."""
    return [
        ConsequenceView(code=each.code, count=each.count, message=each.message) for each in found
    ]


def values(kind: type[enum.StrEnum]) -> Meta:
    """Say in the schema which values a text can have."""
    return Meta(extra_json_schema={"enum": [each.value for each in kind]})


def names(kind: type[enum.StrEnum]) -> Meta:
    """Say in the schema which values a text can have; over HTTP they are in capitals."""
    return Meta(extra_json_schema={"enum": [each.upper() for each in kind]})


def instant(at_ms: int) -> str:
    """Return an instant as RFC 3339 in UTC with milliseconds."""
    text = (EPOCH + timedelta(milliseconds=at_ms)).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z"


def instant_or_unset(at_ms: int | None) -> str | UnsetType:
    """Leave out an instant that is not set."""
    return instant(at_ms) if at_ms else UNSET


def name_or_unset(value: enum.StrEnum | None) -> str | UnsetType:
    """Return the name of a value, if there is one."""
    return UNSET if value is None else value.upper()


def or_unset(value: T | None) -> T | UnsetType:
    """Leave out a missing value; 0 and False are values, an empty text is not."""
    return UNSET if value is None or value == "" else value


def page_fields(page: Page[Any]) -> dict[str, Any]:
    """Return the fields of every page besides its items."""
    fields: dict[str, Any] = {"next_page_token": or_unset(page.next_page_token)}
    if page.total_count is not None:
        fields |= {"total_count": page.total_count, "is_total_exact": page.is_total_exact}
    return fields
