"""The query parameters that many paths share."""

from __future__ import annotations

import enum
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from tenure.core.limits import PAGE_SIZE_MAX, PAGE_TOKEN_LENGTH_MAX
from tenure.errors import InvalidArgument

E = TypeVar("E", bound=enum.StrEnum)
_PageSize = Annotated[int, Meta(description=f"0 is 20, at most {PAGE_SIZE_MAX}", ge=0)]

Label = Annotated[list[str], Meta(description="key=value; may be repeated, and each has to match")]


class NoQuery(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """No parameters."""


class PageQuery(NoQuery, frozen=True):
    """Which page of a list of the whole server."""

    page_size: _PageSize = 0
    page_token: Annotated[str, Meta(max_length=PAGE_TOKEN_LENGTH_MAX)] = ""


class Scoped(NoQuery, frozen=True):
    """A path inside a namespace."""

    namespace: Annotated[
        str,
        Meta(description="tenant/workspace, or a bare name; or use the header Tenure-Namespace"),
    ] = ""


class ScopedPageQuery(Scoped, frozen=True):
    """Which page of a list of a namespace."""

    page_size: _PageSize = 0
    page_token: Annotated[
        str, Meta(description="nextPageToken of the page before", max_length=PAGE_TOKEN_LENGTH_MAX)
    ] = ""


class CountedPageQuery(ScopedPageQuery, frozen=True):
    """A list that can be counted."""

    total_count: Annotated[bool, Meta(description="Also count all that match")] = False


def name_of(kind: type[enum.StrEnum], text: str) -> Meta:
    """Describe a parameter that is the name of a value, in capitals."""
    return Meta(description=text, extra_json_schema={"enum": [each.upper() for each in kind]})


def chosen(kind: type[E], name: str, field: str) -> E | None:
    """Return the value with this name; an empty name means all."""
    known = {each.upper(): each for each in kind}
    if name and name not in known:
        message = f"{field} must be one of {', '.join(known)}"
        raise InvalidArgument(message, field=field)
    return known.get(name)


def labels_of(given: list[str]) -> dict[str, str]:
    """Return the labels of a filter."""
    labels: dict[str, str] = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals or key in labels:
            message = "label must be key=value, each key once"
            raise InvalidArgument(message, field="label")
        labels[key] = value
    return labels
